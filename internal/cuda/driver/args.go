package driver

import (
	"encoding/binary"
	"math"
)

// maxArgs is the size of arguments that every driver accepts, in bytes.
const maxArgs = 4096

// Args are the arguments of a kernel, laid out as its parameters are: each one aligned
// to its size. The zero value is empty; methods append one argument each.
type Args struct{ b []byte }

// Reset forgets the arguments and keeps the room.
func (a *Args) Reset() { a.b = a.b[:0] }

// Pointer appends an address of device memory.
func (a *Args) Pointer(address uint64) *Args {
	a.align(8)
	a.b = binary.LittleEndian.AppendUint64(a.b, address)
	return a
}

// Int64 appends a long long.
func (a *Args) Int64(v int64) *Args { return a.Pointer(uint64(v)) }

// Int32 appends an int.
func (a *Args) Int32(v int32) *Args {
	a.align(4)
	a.b = binary.LittleEndian.AppendUint32(a.b, uint32(v))
	return a
}

// Float32 appends a float.
func (a *Args) Float32(v float32) *Args {
	a.align(4)
	a.b = binary.LittleEndian.AppendUint32(a.b, math.Float32bits(v))
	return a
}

// Bytes are the arguments as a kernel gets them.
func (a *Args) Bytes() []byte { return a.b }

func (a *Args) align(n int) {
	for len(a.b)%n != 0 {
		a.b = append(a.b, 0)
	}
}
