package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHugePages asks for large pages, which save address translations when
// attention walks through long contexts. It is only a hint.
func adviseHugePages(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }

// preferNode asks that pages which are not there yet come from a NUMA node as long as
// it has some. It is only a hint, and none for a negative node. data starts at a page.
func preferNode(data []byte, node int) {
	const bits = 64
	if node < 0 || len(data) == 0 {
		return
	}
	mask := make([]uint64, node/bits+1)
	mask[node/bits] = 1 << (node % bits)
	// The kernel takes the number of bits plus one.
	_, _, _ = unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
		unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*bits+1), 0)
}
