//go:build unix

package cpu

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapMemory maps zeroed, page-aligned memory off the Go heap. Pages take room
// only once they are written.
func mapMemory(size int) ([]byte, func() error, error) {
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	adviseHugePages(data)
	return data, func() error { return unix.Munmap(data) }, nil
}
