//go:build !amd64

package kernel

// blockKernels: there are none.
func blockKernels() map[string]func(t Type, m int, c *BlockCall) { return nil }
