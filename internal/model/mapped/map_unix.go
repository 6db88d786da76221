//go:build unix

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the file read-only.
func mapFile(file *os.File, size int64) ([]byte, func() error, error) {
	data, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}

// willNeed asks the kernel to read ahead.
func willNeed(data []byte) { _ = unix.Madvise(data, unix.MADV_WILLNEED) } // only a hint
