//go:build unix

package quantcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockRetry is the interval of attempts to take a lock that another process holds.
const lockRetry = 50 * time.Millisecond

// Lock waits until no other process makes the file at path. The lock ends with release,
// or with the process. held is false where there are no locks; then files are made all
// the same, by each process for itself.
func Lock(ctx context.Context, path string) (release func(), held bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, false, err
	}
	for {
		f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, false, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil && same(f):
			// The file goes first: whoever opens the path meanwhile makes a new one.
			return func() { _ = os.Remove(f.Name()); _ = f.Close() }, true, nil
		case err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return func() { _ = f.Close() }, false, nil
		}
		_ = f.Close()
		if err == nil {
			continue // its owner has removed the file; there is a new one
		}
		t := time.NewTimer(lockRetry)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, false, context.Cause(ctx)
		case <-t.C:
		}
	}
}

// same reports whether an open file is still the one of its name.
func same(f *os.File) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(f.Name())
	return errA == nil && errB == nil && os.SameFile(a, b)
}
