//go:build !amd64

package kernel

// Without kernels nothing is transposed by them.

func transpose([]byte, []byte, int) int { return 0 }

func transposeBlocks(Type, []byte, []byte, int) int { return 0 }
