package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// fileLockPause and fileLockPauseMax bound the pauses between two attempts. flock
	// itself can wait, but not with a deadline.
	fileLockPause    = 50 * time.Microsecond
	fileLockPauseMax = time.Millisecond
)

// errLockHeld is returned by tryFlock when another process has the lock.
var errLockHeld = errors.New("the lock is held by another process")

// fileLock is the lock under which the store is read and written. Its holder may be killed:
// the kernel, or the server of a shared file system, then releases it.
type fileLock struct {
	dir     string
	file    *os.File // "store.lock": held exclusively for a moment
	waiting *os.File // "store.waiting": held shared by those who wait for it
}

// open creates the directory and the files of the lock if they are missing.
func (l *fileLock) open() error {
	l.close()
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	var err error
	for name, file := range map[string]**os.File{"store.lock": &l.file, "store.waiting": &l.waiting} {
		if *file, err = os.OpenFile(filepath.Join(l.dir, name), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			l.close()
			return err
		}
	}
	if err := tryFlock(l.file, true); err != nil && !errors.Is(err, errLockHeld) {
		l.close()
		return fmt.Errorf("lock %s: %w", l.dir, err)
	}
	return unflock(l.file)
}

func (l *fileLock) close() {
	for _, file := range []**os.File{&l.file, &l.waiting} {
		if *file != nil {
			_ = (*file).Close() // releases it
		}
		*file = nil
	}
}

// acquire takes the lock, or fails when ctx ends.
func (l *fileLock) acquire(ctx context.Context) error {
	announced := false
	for pause := fileLockPause; ; pause = min(2*pause, fileLockPauseMax) {
		if l.file == nil {
			if err := l.open(); err != nil {
				return err
			}
		}
		err := tryFlock(l.file, true)
		switch {
		case err == nil:
			if announced {
				_ = unflock(l.waiting) // else others make a pause for nobody
			}
			if l.inPlace() {
				return nil
			}
			l.close() // somebody removed the directory
			announced = false
			continue
		case !errors.Is(err, errLockHeld):
			return fmt.Errorf("lock %s: %w", l.dir, err)
		}
		if !announced {
			announced = tryFlock(l.waiting, false) == nil
		}
		sleep(ctx, pause)
		if ctx.Err() != nil {
			if announced {
				_ = unflock(l.waiting)
			}
			return fmt.Errorf("lock %s: %w", l.dir, errLockHeld)
		}
	}
}

// inPlace reports whether the lock is that which other processes take.
func (l *fileLock) inPlace() bool {
	open, err := l.file.Stat()
	there, serr := os.Stat(l.file.Name())
	return err == nil && serr == nil && os.SameFile(open, there)
}

// release gives the lock back, and reports whether others wait for it. The caller then makes
// a pause: attempts at intervals would otherwise hardly ever find the lock free.
func (l *fileLock) release() (contended bool) {
	_ = unflock(l.file) // fails only for a bad descriptor
	if errors.Is(tryFlock(l.waiting, true), errLockHeld) {
		return true
	}
	_ = unflock(l.waiting)
	return false
}
