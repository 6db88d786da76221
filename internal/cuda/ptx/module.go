package ptx

// Module is one file of PTX.
type Module struct {
	Name        string // of the file, for errors
	Version     string // such as "7.8"
	Target      string // such as "sm_80"
	AddressSize int    // bits of an address: 64
	Variables   []*Variable
	Functions   []*Function
}

// Function returns the kernel of that name, nil if there is none.
func (m *Module) Function(name string) *Function {
	for _, f := range m.Functions {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Variable is memory that has a name.
type Variable struct {
	Name   string
	Space  string // "param", "shared", "global", "const" or "local"
	Type   Type   // of an element
	Align  int    // of the first byte
	Bytes  int64  // 0 for external ones, whose size a launch gives
	Init   []byte // of the first bytes; the others are zeros
	Extern bool
	Offset int64 // of parameters: where they lie among the arguments
	Line   int
}

// Function is a kernel.
type Function struct {
	Name       string
	Line       int
	Params     []*Variable
	ParamBytes int64
	Variables  []*Variable // those that the body declares
	Registers  []Register  // those that the body uses
	MaxThreads [3]int      // of a block, from .maxntid or .reqntid; zeros without
	Required   bool        // MaxThreads must be the size of a block
	Cluster    [3]int      // blocks of a cluster, from .reqnctapercluster; zeros without
	Body       []Instruction
}

// Register is a register of a thread.
type Register struct {
	Name string
	Type Type
}

// Location is a line of the source that PTX was made from, where .loc says so.
type Location struct {
	File string
	Line int
}

// Instruction is one of them, with its operands as they were written, results first.
type Instruction struct {
	Line      int
	Source    Location
	Guard     int      // the predicate under which it runs, -1 for none
	Negated   bool     // it runs where the predicate is false
	Opcode    string   // "add"
	Modifiers []string // "s32"
	Operands  []Operand
}

// String is the opcode with its modifiers.
func (i *Instruction) String() string {
	text := i.Opcode
	for _, m := range i.Modifiers {
		text += "." + m
	}
	return text
}

// OperandKind says which fields of an operand count.
type OperandKind uint8

// Kinds of operands.
const (
	NoOperand OperandKind = iota
	// InRegister has Register, and Negated for predicates.
	InRegister
	// Integer has Bits.
	Integer
	// Float32 and Float64 have Bits, those of the number.
	Float32
	Float64
	// Symbol is the address of Variable + Bits.
	Symbol
	// Special has Name: "tid.x".
	Special
	// Label has Target.
	Label
	// Memory is Elements[0] + Bits in brackets, with what else is in them behind it. Bits has
	// what Elements[0] would add.
	Memory
	// Vector has Elements.
	Vector
	// Pair is two results with a bar between them, in Elements.
	Pair
	// Discard is an unused result.
	Discard
)

// Operand of an instruction.
type Operand struct {
	Kind     OperandKind
	Register int // index into Function.Registers
	Negated  bool
	Bits     uint64
	Variable *Variable
	Name     string
	Target   int // index into Function.Body, its length for the end
	Elements []Operand
}
