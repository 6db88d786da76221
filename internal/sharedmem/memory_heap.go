//go:build !unix

package sharedmem

func allocate(_ string, size int) ([]byte, int, func() error, error) {
	data, unmap, err := private(size)
	return data, -1, unmap, err
}

// private takes memory from the Go heap where it cannot be mapped; large allocations
// are page-aligned and do not move.
func private(size int) ([]byte, func() error, error) {
	return make([]byte, size), func() error { return nil }, nil
}
