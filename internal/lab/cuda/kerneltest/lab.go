package kerneltest

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
)

// Memory holds the operands of an operation.
type Memory interface {
	// Alloc allocates n bytes, at a multiple of 16, and returns what the operation finds in
	// them when it runs.
	Alloc(n int) (address uint64, content []byte, err error)
}

// Lab makes the operands of an operation: the same ones for the same name, in whatever
// memory.
type Lab struct {
	*rand.Rand
	// Outputs are written by the operation, in the order in which they were made.
	Outputs []Output
	// Scratch may be left in any state. All other memory must stay as it is.
	Scratch [][]byte

	memory Memory
	err    error
}

// Output is memory that an operation writes, with what it held before.
type Output struct {
	Name   string
	Memory []byte
	Near   Tolerance
}

// NewLab makes operands in a memory; the name is that of a case.
func NewLab(m Memory, name string) *Lab {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return &Lab{Rand: rand.New(&counter{key: h.Sum64()}), memory: m}
}

// counter is a source of random numbers that are a function of a key and their place.
type counter struct{ key, at uint64 }

// Uint64 implements rand.Source.
func (c *counter) Uint64() uint64 {
	c.at++
	return mix(mix(c.key) ^ bits.RotateLeft64(c.at*0x9e3779b97f4a7c15, 31))
}

// Err is why memory could not be had; operands made after that are not those of the case.
func (l *Lab) Err() error { return l.err }

// Alloc allocates n bytes.
func (l *Lab) Alloc(n int) (address uint64, content []byte) {
	if l.err == nil {
		address, content, l.err = l.memory.Alloc(n)
	}
	if l.err != nil {
		return 16, make([]byte, n) // the operation will not run
	}
	return address, content
}

// Values allocates n values of a normal distribution, rounded to bf16.
func (l *Lab) Values(n int, scale float64) uint64 {
	address, memory := l.Alloc(2 * n)
	l.normal(memory, scale)
	return address
}

func (l *Lab) normal(memory []byte, scale float64) {
	for i := range len(memory) / 2 {
		binary.LittleEndian.PutUint16(memory[2*i:], uint16(Round(l.NormFloat64()*scale)))
	}
}

// Int32s allocates and fills memory.
func (l *Lab) Int32s(v ...int32) uint64 {
	address, memory := l.Alloc(4 * len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(memory[4*i:], uint32(x))
	}
	return address
}

// Int64s allocates and fills memory.
func (l *Lab) Int64s(v ...int64) uint64 {
	address, memory := l.Alloc(8 * len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint64(memory[8*i:], uint64(x))
	}
	return address
}

// Float32s allocates and fills memory.
func (l *Lab) Float32s(v ...float32) uint64 {
	address, memory := l.Alloc(4 * len(v))
	putFloats(memory, v)
	return address
}

func putFloats(memory []byte, v []float32) {
	for i, x := range v {
		binary.LittleEndian.PutUint32(memory[4*i:], math.Float32bits(x))
	}
}

// Bytes makes memory of what kernels read.
func (l *Lab) Bytes(b []byte) uint64 {
	address, memory := l.Alloc(len(b))
	copy(memory, b)
	return address
}

// Out allocates n bytes that the operation writes; what it leaves alone must stay as it is.
func (l *Lab) Out(name string, n int, near Tolerance) uint64 {
	address, memory := l.Alloc(n)
	for i := range memory {
		memory[i] = 0x3c // a small number in every type
	}
	l.Outputs = append(l.Outputs, Output{name, memory, near})
	return address
}

// InOut makes bf16 values that the operation changes.
func (l *Lab) InOut(name string, n int, scale float64, near Tolerance) uint64 {
	address, memory := l.Alloc(2 * n)
	l.normal(memory, scale)
	l.Outputs = append(l.Outputs, Output{name, memory, near})
	return address
}

// Working allocates n bytes of working memory; for none the address is 0.
func (l *Lab) Working(n int) uint64 {
	if n == 0 {
		return 0
	}
	address, memory := l.Alloc(n)
	l.Scratch = append(l.Scratch, memory)
	return address
}
