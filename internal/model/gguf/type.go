package gguf

import "fmt"

// Type is the element type of a tensor, with the number that files use.
type Type uint32

// The element types that [Dequantize] knows.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q8_0 Type = 8
	Q4K  Type = 12
	Q5K  Type = 13
	Q6K  Type = 14
	BF16 Type = 30
)

// layout describes the storage of a type: weights come in blocks of a fixed size.
type layout struct {
	name    string
	weights int // per block
	bytes   int // per block
}

// layoutOf returns the layout of a type. Types that the engines do not compute with are
// known as well, so that a file can be described before it is refused.
func layoutOf(t Type) (layout, bool) {
	switch t {
	case F32:
		return layout{"F32", 1, 4}, true
	case F16:
		return layout{"F16", 1, 2}, true
	case Q4_0:
		return layout{"Q4_0", 32, 18}, true
	case 3:
		return layout{"Q4_1", 32, 20}, true
	case 6:
		return layout{"Q5_0", 32, 22}, true
	case 7:
		return layout{"Q5_1", 32, 24}, true
	case Q8_0:
		return layout{"Q8_0", 32, 34}, true
	case 10:
		return layout{"Q2_K", 256, 84}, true
	case 11:
		return layout{"Q3_K", 256, 110}, true
	case Q4K:
		return layout{"Q4_K", 256, 144}, true
	case Q5K:
		return layout{"Q5_K", 256, 176}, true
	case Q6K:
		return layout{"Q6_K", 256, 210}, true
	case 24:
		return layout{"I8", 1, 1}, true
	case 25:
		return layout{"I16", 1, 2}, true
	case 26:
		return layout{"I32", 1, 4}, true
	case 27:
		return layout{"I64", 1, 8}, true
	case 28:
		return layout{"F64", 1, 8}, true
	case BF16:
		return layout{"BF16", 1, 2}, true
	case 39:
		return layout{"MXFP4", 32, 17}, true
	}
	return layout{}, false
}

// ParseType finds the type that [Dequantize] knows by its name; see [Type.String].
func ParseType(name string) (Type, bool) {
	for _, t := range []Type{F32, F16, BF16, Q8_0, Q4_0, Q4K, Q5K, Q6K} {
		if t.String() == name {
			return t, true
		}
	}
	return 0, false
}

// String is the name of the type as ggml spells it.
func (t Type) String() string {
	if l, ok := layoutOf(t); ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockWeights is the number of weights in a block, 1 for plain types and 0 for
// unknown ones. Rows are whole blocks.
func (t Type) BlockWeights() int {
	l, _ := layoutOf(t)
	return l.weights
}

// BlockBytes is the size of a block in bytes.
func (t Type) BlockBytes() int {
	l, _ := layoutOf(t)
	return l.bytes
}
