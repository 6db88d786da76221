//go:build !linux && unix

package nixl

import "golang.org/x/sys/unix"

// mapMemory maps anonymous memory.
func mapMemory(size int64) ([]byte, func() error, error) {
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	return mem, func() error { return unix.Munmap(mem) }, nil
}
