package drivertest

import (
	_ "embed"
	"encoding/binary"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// PTX is a module with one kernel, axpy(float *dst, const float *src, int n, float a),
// which adds a times src to dst.
//
//go:embed axpy.ptx
var PTX []byte

// Axpy is the kernel as a Go function.
var Axpy = fake.Kernel{Name: "axpy", Resources: driver.Resources{Registers: 12, MaxThreads: 1024, BinaryArch: 90}, Run: func(c *fake.Call) {
	to, from, n, a := c.Pointer(), c.Pointer(), int64(c.Int32()), c.Float32()
	n = min(n, int64(c.Grid.X)*int64(c.Block.X))
	dst, src := c.Write(to, 4*n), c.Read(from, 4*n)
	for i := range n {
		setFloat(dst, int(i), getFloat(dst, int(i))+a*getFloat(src, int(i)))
	}
}}

func getFloat(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

func setFloat(b []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
}
