package kernel

import "golang.org/x/sys/cpu"

// blockKernels are all products with blocks that this machine can run, whatever
// level would choose them.
func blockKernels() map[string]func(t Type, m int, c *BlockCall) {
	all := map[string]func(t Type, m int, c *BlockCall){}
	add := func(name string, has bool, table *[Q6K + 1][blockRows + 1]func(*BlockCall)) {
		if has {
			all[name] = func(t Type, m int, c *BlockCall) { table[t][m](c) }
		}
	}
	add("vnni512", Best() == AVX512 && cpu.X86.HasAVX512VNNI, &blocksVNNI512)
	add("vnni256", Best() >= AVX2 && cpu.X86.HasAVXVNNI, &blocksVNNI256)
	add("avx2", Best() >= AVX2, &blocksAVX2)
	return all
}
