package nixl

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mapMemory maps a memfd, so that the arena can be handed to other processes.
func mapMemory(size int64) ([]byte, func() error, error) {
	fd, err := unix.MemfdCreate("nixl-arena", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	return mem, func() error { return errors.Join(unix.Munmap(mem), unix.Close(fd)) }, nil
}
