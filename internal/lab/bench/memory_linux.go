package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapMemory maps anonymous memory, in large pages if possible, as the CPU backend does
// for KV pools.
func mapMemory(n int) ([]byte, func() error, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // only a hint
	return b, func() error { return unix.Munmap(b) }, nil
}
