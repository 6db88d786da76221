//go:build unix

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the file read-only and asks the kernel to read ahead: all of the
// weights are needed for the first token.
func mapFile(file *os.File, size int64) ([]byte, func() error, error) {
	data, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(data, unix.MADV_WILLNEED) // only a hint
	return data, func() error { return unix.Munmap(data) }, nil
}
