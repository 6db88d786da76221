package cpu

import "golang.org/x/sys/unix"

// adviseHugePages asks for large pages, which save address translations when
// attention walks through long contexts. It is only a hint.
func adviseHugePages(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }
