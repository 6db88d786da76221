package posix

import (
	"errors"

	"golang.org/x/sys/unix"
)

const noatime = unix.O_NOATIME

func readv(fd int, mem [][]byte, off int64) (int, error) {
	return retry(func() (int, error) { return unix.Preadv(fd, mem, off) })
}

func writev(fd int, mem [][]byte, off int64) (int, error) {
	return retry(func() (int, error) { return unix.Pwritev(fd, mem, off) })
}

// retry repeats what a signal has interrupted.
func retry(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
