package kernel

import "syscall"

// requestTiles asks for the use of tiles, for all threads of the process and its
// children. Only threads that use tiles pay for saving them.
func requestTiles() bool {
	const (
		archRequestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData              = 18
	)
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archRequestPermission, tileData, 0)
	return errno == 0
}
