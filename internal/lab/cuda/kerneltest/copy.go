package kerneltest

import "github.com/dynctl/dynctl/internal/lab/cuda/fake"

func copyPieces(c *fake.Call) {
	to, from, toOffsets, fromOffsets, n := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer(), c.Int64()
	pieces := int(c.Grid.Y)
	target := read[int64](c, toOffsets, pieces)
	for i, source := range read[int64](c, fromOffsets, pieces) {
		copy(c.Write(to+uint64(target[i]), n), c.Read(from+uint64(source), n))
	}
}
