//go:build unix

package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LockedError is returned when another process holds a lock.
type LockedError struct {
	Path string
	PID  int // 0 when unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return e.Path + " is locked by another process"
	}
	return fmt.Sprintf("%s is locked by process %d", e.Path, e.PID)
}

// Lock is a held lock.
type Lock struct{ f *os.File }

// Lock takes the lock of a node, or returns a *LockedError at once.
func (n Node) Lock() (*Lock, error) { return lock(n.lockPath()) }

func (n Node) lockPath() string { return filepath.Join(n.Path, "lock") }

func (n Node) hasLock() bool {
	_, err := os.Stat(n.lockPath())
	return err == nil
}

// Holder returns the pid of the dynamod that holds the node's lock.
func (n Node) Holder() (pid int, held bool) {
	f, err := os.Open(n.lockPath())
	if err != nil {
		return 0, false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0, false // closing the file releases the lock
	}
	return readPID(f), true
}

func (c Cluster) startLockPath() string { return filepath.Join(c.Path, "up.lock") }

// LockStart takes the lock under which dynctl starts processes. It waits while another
// dynctl holds it.
func (c Cluster) LockStart(ctx context.Context) (*Lock, error) {
	if err := os.MkdirAll(c.Path, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	for {
		l, err := lock(c.startLockPath())
		var locked *LockedError
		if err == nil || !errors.As(err, &locked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Checking whether a lock is held takes it, shared, for a moment. [lock] therefore tries
// a few times before it concludes that another process holds it.
const (
	lockTries = 5
	lockRetry = 10 * time.Millisecond
)

func lock(path string) (*Lock, error) {
	for try := 1; ; try++ {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			pid := readPID(f)
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) && try < lockTries {
				time.Sleep(lockRetry)
				continue
			}
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &LockedError{Path: path, PID: pid}
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The file may have been removed between open and lock.
		if same(f, path) {
			if err := writePID(f); err != nil {
				f.Close()
				return nil, fmt.Errorf("lock %s: %w", path, err)
			}
			return &Lock{f: f}, nil
		}
		f.Close()
	}
}

func same(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(f *os.File) int {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	return pid
}

// Release removes the lock's file and releases the lock. It removes the file first, so
// that a process that opens the path meanwhile makes a new one. A file that is another one
// by now stays, as after [Cluster.Purge].
func (l *Lock) Release() error {
	var err error
	if same(l.f, l.f.Name()) {
		err = os.Remove(l.f.Name())
	}
	return errors.Join(err, l.f.Close())
}
