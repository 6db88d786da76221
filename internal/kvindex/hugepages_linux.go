package kvindex

import (
	"syscall"
	"unsafe"
)

const (
	hugePage       = 2 << 20
	adviseHuge     = 14 // MADV_HUGEPAGE
	adviseCollapse = 25 // MADV_COLLAPSE, since Linux 6.1
)

// useHugePages backs a large table by huge pages, as far as the kernel allows it. With
// small pages, most lookups in such a table wait for the page table, too. The memory at both
// ends that fills no huge page stays as it is.
func useHugePages(buckets []bucket) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(buckets)))
	skip := -start & (hugePage - 1)
	size := uintptr(len(buckets)) * unsafe.Sizeof(bucket{})
	if size < skip+hugePage {
		return
	}
	part := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(buckets)), skip)), (size-skip)&^(hugePage-1))
	if syscall.Madvise(part, adviseHuge) == nil {
		// The memory may be in small pages already. A kernel that cannot collapse them
		// now does it in time.
		_ = syscall.Madvise(part, adviseCollapse)
	}
}
