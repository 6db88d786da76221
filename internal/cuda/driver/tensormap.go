package driver

import (
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// TensorMap describes a matrix of bf16 in device memory to the unit of compute capability 9.0 that
// copies boxes of it to shared memory (TMA). Values of a box that are outside of the matrix
// come as zeros. Boxes are swizzled by 128 bytes: in shared memory the 16-byte chunks of
// each 128 bytes are exchanged, chunk c of row r for chunk c xor r%8.
type TensorMap struct {
	Address uint64 // of the first value, a multiple of 16
	// Rows and Columns are the sizes of the matrix, Stride the bytes from one row to the
	// next, a multiple of 16.
	Rows, Columns, Stride uint64
	// BoxRows and BoxColumns are the sizes of a box, each at most 256; a row of it has at
	// most 128 bytes, and a multiple of 16.
	BoxRows, BoxColumns uint32
}

// tensorValue is the size of a value in bytes.
const tensorValue = 2

// EncodedTensorMap is a CUtensorMap, as kernels take it as an argument. It means something
// to devices only.
type EncodedTensorMap [128]byte

// tensorMapAlign is the alignment of a CUtensorMap, in bytes.
const tensorMapAlign = 64

// Check returns why a tensor map cannot be encoded.
func (m *TensorMap) Check() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: tensor map: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	row := uint64(m.BoxColumns) * tensorValue
	switch {
	case m.Address == 0 || m.Address%16 != 0:
		return wrong("%#x is not an address at a multiple of 16 bytes", m.Address)
	case m.Rows < 1 || m.Rows > 1<<32 || m.Columns < 1 || m.Columns > 1<<32:
		return wrong("a matrix of %d x %d", m.Rows, m.Columns)
	case m.Stride%16 != 0 || m.Stride >= 1<<40 || m.Stride < m.Columns*tensorValue:
		return wrong("%d bytes from row to row of %d values", m.Stride, m.Columns)
	case m.BoxRows < 1 || m.BoxRows > 256 || m.BoxColumns < 1 || m.BoxColumns > 256:
		return wrong("boxes of %d x %d", m.BoxRows, m.BoxColumns)
	case row > 128 || row%16 != 0:
		return wrong("a row of a box has %d bytes", row)
	}
	return nil
}

// Values of the enumerations of cuTensorMapEncodeTiled.
const (
	typeBF16       = 9 // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
	interleaveNone = 0
	swizzle128     = 3 // CU_TENSOR_MAP_SWIZZLE_128B
	promoteL2256   = 3 // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
	fillZeros      = 0 // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
)

// tensorMapBlock holds the arguments of the call, with room to align the map. The Go heap does
// not move it.
type tensorMapBlock struct {
	encoded [128 + tensorMapAlign]byte
	sizes   [2]uint64 // columns, rows
	strides [1]uint64 // of all dimensions but the first
	box     [2]uint32
	steps   [2]uint32 // from one value that is copied to the next
}

// TensorMapEncode implements Driver. It is arithmetic of the host alone.
func (d *CUDA) TensorMapEncode(device int, m *TensorMap) (encoded EncodedTensorMap, err error) {
	if err := m.Check(); err != nil {
		return encoded, err
	}
	if d.fn.tensorMapEncode == 0 {
		return encoded, fmt.Errorf("%w: it has no cuTensorMapEncodeTiled: update NVIDIA's driver", ErrTooOld)
	}
	if err := d.enter(device); err != nil {
		return encoded, err
	}
	defer leave()
	b := &tensorMapBlock{
		sizes: [2]uint64{m.Columns, m.Rows}, strides: [1]uint64{m.Stride}, box: [2]uint32{m.BoxColumns, m.BoxRows}, steps: [2]uint32{1, 1},
	}
	off := -uintptr(unsafe.Pointer(&b.encoded)) % tensorMapAlign
	if err := d.call("cuTensorMapEncodeTiled", device, dynlib.Call(d.fn.tensorMapEncode, uintptr(unsafe.Pointer(&b.encoded[off])), typeBF16, 2, uintptr(m.Address),
		uintptr(unsafe.Pointer(&b.sizes)), uintptr(unsafe.Pointer(&b.strides)), uintptr(unsafe.Pointer(&b.box)), uintptr(unsafe.Pointer(&b.steps)),
		interleaveNone, swizzle128, promoteL2256, fillZeros)); err != nil {
		return encoded, err
	}
	return EncodedTensorMap(b.encoded[off:]), nil
}

// TensorMap appends a tensor map, for a parameter that is __grid_constant__.
func (a *Args) TensorMap(m *EncodedTensorMap) *Args {
	a.align(tensorMapAlign)
	a.b = append(a.b, m[:]...)
	return a
}
