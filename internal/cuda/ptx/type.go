package ptx

// Type is the type of an instruction's operand or of a variable.
type Type uint8

// Types of PTX. A register of a type holds values of every type of its size.
const (
	NoType Type = iota
	Pred
	B8
	U8
	S8
	B16
	U16
	S16
	F16
	BF16
	F16x2
	BF16x2
	B32
	U32
	S32
	F32
	TF32
	B64
	U64
	S64
	F64
	B128
	E4M3x2
	E5M2x2
)

// Kind is the arithmetic that a type is for.
type Kind uint8

// Kinds of types.
const (
	Untyped Kind = iota
	Unsigned
	Signed
	Float
)

var types = map[string]struct {
	t    Type
	bits int
	kind Kind
}{
	"pred": {Pred, 1, Untyped},
	"b8":   {B8, 8, Untyped}, "u8": {U8, 8, Unsigned}, "s8": {S8, 8, Signed},
	"b16": {B16, 16, Untyped}, "u16": {U16, 16, Unsigned}, "s16": {S16, 16, Signed}, "f16": {F16, 16, Float}, "bf16": {BF16, 16, Float},
	"f16x2": {F16x2, 32, Float}, "bf16x2": {BF16x2, 32, Float},
	"b32": {B32, 32, Untyped}, "u32": {U32, 32, Unsigned}, "s32": {S32, 32, Signed}, "f32": {F32, 32, Float}, "tf32": {TF32, 32, Float},
	"b64": {B64, 64, Untyped}, "u64": {U64, 64, Unsigned}, "s64": {S64, 64, Signed}, "f64": {F64, 64, Float},
	"b128":   {B128, 128, Untyped},
	"e4m3x2": {E4M3x2, 16, Float}, "e5m2x2": {E5M2x2, 16, Float},
}

var typeNames, typeBits, typeKinds = func() (names map[Type]string, bits map[Type]int, kinds map[Type]Kind) {
	names, bits, kinds = map[Type]string{}, map[Type]int{}, map[Type]Kind{}
	for name, t := range types {
		names[t.t], bits[t.t], kinds[t.t] = name, t.bits, t.kind
	}
	return names, bits, kinds
}()

// TypeOf returns the type of a name such as "u32".
func TypeOf(name string) (Type, bool) {
	t, ok := types[name]
	return t.t, ok
}

// Bits is the size of a value.
func (t Type) Bits() int { return typeBits[t] }

// Kind is the arithmetic of the type.
func (t Type) Kind() Kind { return typeKinds[t] }

// String is the name without its dot.
func (t Type) String() string { return typeNames[t] }
