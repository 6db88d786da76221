//go:build !linux

package bench

func mapMemory(n int) ([]byte, func() error, error) {
	return make([]byte, n), func() error { return nil }, nil
}
