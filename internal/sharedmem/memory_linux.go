package sharedmem

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate maps a memfd whose size is sealed: no holder of the descriptor can make
// the pages of another vanish. Without memfds the memory is private.
func allocate(name string, size int) ([]byte, int, func() error, error) {
	fd, err := sealedFile(name, size)
	if err != nil {
		data, unmap, err := private(size)
		return data, -1, unmap, err
	}
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, -1, nil, errors.Join(os.NewSyscallError("mmap", err), unix.Close(fd))
	}
	return data, fd, func() error { return errors.Join(unix.Munmap(data), unix.Close(fd)) }, nil
}

func sealedFile(name string, size int) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Seals)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Seals are those of every shared memory: its size is final. A process that maps
// memory of another one checks them, so that no access can fault.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
