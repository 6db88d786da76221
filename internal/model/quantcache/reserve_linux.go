package quantcache

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve takes the room of a file on the disk.
func reserve(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(size)
		case err != nil:
			return os.NewSyscallError("fallocate", err)
		}
		return nil
	}
}
