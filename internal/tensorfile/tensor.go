package tensorfile

import (
	"encoding/binary"
	"math/bits"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Tensor is a tensor whose elements lie row by row, little-endian. The type is that of the
// file. A scalar has an empty shape.
type Tensor struct {
	Name  string
	DType safetensors.DType
	Shape []int
	Data  []byte
}

// CheckFinite returns an error if a floating-point tensor of 16, 32 or 64 bits has an
// infinite element or one that is not a number. It matches ErrFormat.
func (t Tensor) CheckFinite() error {
	size := t.DType.Bytes(1)
	var exponent uint64 // all of its bits are set in what is not finite
	switch t.DType {
	case safetensors.F16:
		exponent = 0x7c00
	case safetensors.BF16:
		exponent = 0x7f80
	case safetensors.F32:
		exponent = 0x7f800000
	case "F64":
		exponent = 0x7ff << 52
	default:
		return nil
	}
	for i := 0; i+size <= len(t.Data); i += size {
		var v uint64
		switch size {
		case 2:
			v = uint64(binary.LittleEndian.Uint16(t.Data[i:]))
		case 4:
			v = uint64(binary.LittleEndian.Uint32(t.Data[i:]))
		default:
			v = binary.LittleEndian.Uint64(t.Data[i:])
		}
		if v&exponent == exponent {
			return formatf("element %d of tensor %q is not a finite number", i/size, t.Name)
		}
	}
	return nil
}

// view is a tensor as torch describes it: steps through a storage, counted in elements.
type view struct {
	dtype          safetensors.DType
	storage        []byte
	offset         int64
	shape, strides []int64
}

const maxRank = 8

// contiguous returns the elements row by row. They may take as many bytes as are left,
// which it counts down: a stride of 0 repeats an element as often as one likes.
func (v view) contiguous(left *int) (Tensor, error) {
	size := int64(v.dtype.Bytes(1))
	have := int64(len(v.storage)) / size
	if len(v.shape) != len(v.strides) {
		return Tensor{}, formatf("%d dimensions and %d strides", len(v.shape), len(v.strides))
	}
	if len(v.shape) > maxRank {
		return Tensor{}, unsupportedf("%d dimensions, more than %d", len(v.shape), maxRank)
	}
	count := uint64(1)
	for _, n := range v.shape {
		if n < 0 {
			return Tensor{}, formatf("a dimension of %d", n)
		}
		high, low := bits.Mul64(count, uint64(n))
		if count = low; high != 0 {
			return Tensor{}, limitf("shape %v", v.shape)
		}
	}
	if count > uint64(*left)/uint64(size) {
		return Tensor{}, limitf("a tensor of shape %v, where %d bytes are left", v.shape, *left)
	}
	last := uint64(v.offset) // position of the last element
	if v.offset < 0 || v.offset > have {
		return Tensor{}, formatf("an offset of %d in %d elements", v.offset, have)
	}
	for i, stride := range v.strides {
		if stride < 0 {
			return Tensor{}, formatf("a stride of %d", stride)
		}
		if count > 0 {
			high, low := bits.Mul64(uint64(v.shape[i]-1), uint64(stride))
			var carry uint64
			if last, carry = bits.Add64(last, low, 0); high != 0 || carry != 0 {
				last = 1 << 63
				break
			}
		}
	}
	if count > 0 && last >= uint64(have) {
		return Tensor{}, formatf("shape %v with strides %v from %d on reaches over %d elements", v.shape, v.strides, v.offset, have)
	}
	t := Tensor{DType: v.dtype, Shape: make([]int, len(v.shape))}
	for i, n := range v.shape {
		t.Shape[i] = int(n)
	}
	*left -= int(count) * int(size)
	if count == 0 {
		return t, nil
	}
	outer, run := len(v.shape), int64(1) // dimensions within outer lie in a run
	for outer > 0 && (v.strides[outer-1] == run || v.shape[outer-1] == 1) {
		outer--
		run *= v.shape[outer]
	}
	if outer == 0 {
		t.Data = v.storage[v.offset*size:][:run*size]
	} else {
		t.Data = v.gather(make([]byte, 0, int64(count)*size), v.shape[:outer], v.strides, v.offset, size, run*size)
	}
	return t, nil
}

// gather appends runs of bytes, one for each index of these dimensions.
func (v view) gather(to []byte, shape, strides []int64, at, size, run int64) []byte {
	for range shape[0] {
		if len(shape) > 1 {
			to = v.gather(to, shape[1:], strides[1:], at, size, run)
		} else {
			to = append(to, v.storage[at*size:at*size+run]...)
		}
		at += strides[0]
	}
	return to
}
