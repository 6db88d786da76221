package cpu

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHugePages asks for large pages, which save address translations when attention
// reads long contexts. It is only a hint.
func adviseHugePages(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }

// preferNode asks the kernel to take pages that are not allocated yet from a NUMA node
// while it has free ones. It is only a hint, and does nothing for a negative node. data
// must start at a page.
func preferNode(data []byte, node int) {
	const bits = 64
	if node < 0 || len(data) == 0 {
		return
	}
	mask := make([]uint64, node/bits+1)
	mask[node/bits] = 1 << (node % bits)
	// The kernel expects the number of bits plus one.
	_, _, _ = unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
		unix.MPOL_PREFERRED, uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*bits+1), 0)
}
