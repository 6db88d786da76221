package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	lockFile = "server.lock"
	// lockPatience gives a predecessor time to finish its shutdown.
	lockPatience = 5 * time.Second
	lockRetry    = 50 * time.Millisecond
)

// errLocked is returned by tryLock when another server has the lock.
var errLocked = errors.New("locked")

// dirLock keeps other servers out of a directory. It lasts until it is released or the
// process ends, in whatever way.
type dirLock struct {
	file *os.File
}

func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	return &dirLock{file: file}, nil
}

// acquire takes the lock. It waits up to lockPatience for another server to leave.
func (l *dirLock) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	for {
		err := tryLock(l.file)
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			return fmt.Errorf("%w: lock %s: %w", ErrDir, l.file.Name(), err)
		}
		select {
		case <-time.After(lockRetry):
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errLocked) {
				return cause
			}
			return fmt.Errorf("%w: %s%s", ErrDirInUse, filepath.Dir(l.file.Name()), l.holder())
		}
	}
	// The content is only for the error message of a server that finds the lock taken.
	_ = l.file.Truncate(0)
	_, _ = l.file.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return nil
}

func (l *dirLock) holder() string {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return " (by process " + pid + ")"
	}
	return ""
}

// release releases the lock. The file stays: without it, two servers could lock two
// different files of the same name.
func (l *dirLock) release() {
	_ = l.file.Close()
}

// has reports whether fd is the descriptor of the lock file.
func (l *dirLock) has(fd int) bool { return int(l.file.Fd()) == fd }
