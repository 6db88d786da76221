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
	// lockPatience lets a predecessor that is still shutting down leave.
	lockPatience = 5 * time.Second
	lockRetry    = 50 * time.Millisecond
)

// errLocked is what tryLock returns when somebody else has the lock.
var errLocked = errors.New("locked")

// dirLock keeps other servers out of a directory until it is released or the
// process ends, however it ends.
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

// acquire takes the lock, waiting a little for another server to leave.
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
	// Only for the message of the next one who comes too early.
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

// release gives the lock back. The file stays: removing it would let two
// servers lock two different files of the same name.
func (l *dirLock) release() {
	_ = l.file.Close()
}

// has reports whether fd is the lock's own.
func (l *dirLock) has(fd int) bool { return int(l.file.Fd()) == fd }
