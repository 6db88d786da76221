package gpucheck

import (
	_ "embed"
	"encoding/binary"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// readPTX is probe/read.cu, compiled by NVRTC 11.8 for compute capability 8.0.
//
//go:embed probe/read.ptx
var readPTX []byte

const (
	readKernel  = "read_all"
	readThreads = 256
	pieceBytes  = 16
)

// readTwin is the kernel as a Go function.
var readTwin = fake.Kernel{Name: readKernel, Resources: driver.Resources{Registers: 40, MaxThreads: readThreads, BinaryArch: 90}, Run: func(c *fake.Call) {
	sumsAt, fromAt, n := c.Pointer(), c.Pointer(), c.Int64()
	threads := int64(c.Grid.X) * int64(c.Block.X)
	sums, from := c.Write(sumsAt, 4*threads), c.Read(fromAt, pieceBytes*n)
	for t := range threads {
		binary.LittleEndian.PutUint32(sums[4*t:], readSum(from, t, threads))
	}
}}

// readSum returns the sum that a thread computes over memory.
func readSum(from []byte, thread, threads int64) (sum uint32) {
	for i := thread; i < int64(len(from))/pieceBytes; i += threads {
		for w := range int64(pieceBytes / 4) {
			sum += binary.LittleEndian.Uint32(from[i*pieceBytes+4*w:])
		}
	}
	return sum
}
