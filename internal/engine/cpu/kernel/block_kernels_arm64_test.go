package kernel

import "golang.org/x/sys/cpu"

// blockKernels are all products with blocks that this machine can run, whichever it
// would choose.
func blockKernels() map[string]func(t Type, m int, c *BlockCall) {
	all := map[string]func(t Type, m int, c *BlockCall){
		"neon": func(t Type, m int, c *BlockCall) { productBlocks(&blocksNEON[t], m, c) },
	}
	if cpu.ARM64.HasASIMDDP {
		all["sdot"] = func(t Type, m int, c *BlockCall) { productBlocks(&blocksSDOT[t], m, c) }
	}
	if hasI8MM {
		all["i8mm"] = func(t Type, m int, c *BlockCall) { productMatrix(blocksI8MM[t], m, c) }
	}
	return all
}
