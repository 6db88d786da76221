package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// int8Kernels are those of a type of weights: dst gets whole blocks of src in the form
// of CallInt8.
type int8Kernels struct {
	unpack  func(dst, src unsafe.Pointer, blocks int)
	product func(c *CallInt8)
}

func hasInt8Tiles() bool { return assumed.Load() || cpu.X86.HasAMXInt8 }

func (l Level) unpackInt8(t Type, dst, src unsafe.Pointer, blocks int) {
	int8AMX[t].unpack(dst, src, blocks)
}

func (l Level) tilesInt8(t Type, c *CallInt8) { int8AMX[t].product(c) }
