package sharedmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// populate has the kernel do for a range what its first write would.
func populate(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
		return fmt.Errorf("populate %d bytes: %w", len(b), os.NewSyscallError("madvise", err))
	}
	return nil
}
