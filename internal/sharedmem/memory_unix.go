//go:build unix

package sharedmem

import (
	"os"

	"golang.org/x/sys/unix"
)

// private maps memory that no other process sees.
func private(size int) ([]byte, func() error, error) {
	data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
