package kernel

import "golang.org/x/sys/unix"

// tilesPermitted asks the system for the tiles' state, once for the whole process; it
// refuses when it or the processor knows none.
func tilesPermitted() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
