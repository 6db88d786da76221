//go:build !unix

package cpu

// mapMemory takes memory from the Go heap where it cannot be mapped; large
// allocations are page-aligned and do not move.
func mapMemory(size int) ([]byte, func() error, error) {
	return make([]byte, size), func() error { return nil }, nil
}
