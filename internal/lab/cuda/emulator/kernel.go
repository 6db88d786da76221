package emulator

import (
	"bytes"
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// Where memory lies that is not the device's own: generic addresses of shared memory begin
// at sharedWindow, those within it at sharedBase, so that 0 is none. Variables of modules
// lie behind moduleBase.
const (
	sharedWindow = 1 << 60
	sharedBase   = 1 << 10
	moduleBase   = 1 << 59
)

// mostShared limits the shared memory that a launch may ask for.
const mostShared = 1 << 20

// Module has kernels that can run.
type Module struct {
	file      string
	kernels   map[string]*Kernel
	names     []string
	variables Allocation
	places    map[*ptx.Variable]uint64 // addresses in their spaces
}

// Load makes a module ready. An error names the line that is not understood.
func Load(parsed *ptx.Module) (*Module, error) {
	m := &Module{file: parsed.Name, kernels: map[string]*Kernel{}, places: map[*ptx.Variable]uint64{}}
	m.variables.Address = moduleBase
	for _, v := range parsed.Variables {
		m.place(v)
	}
	for _, f := range parsed.Functions {
		k, err := m.compile(f, parsed.Variables)
		if err != nil {
			return nil, err
		}
		m.kernels[f.Name] = k
		m.names = append(m.names, f.Name)
	}
	return m, nil
}

// Clone has the same kernels with variables of its own, as when a module is loaded again.
func (m *Module) Clone() *Module {
	c := *m
	c.variables.Bytes = bytes.Clone(m.variables.Bytes)
	c.kernels = map[string]*Kernel{}
	for name, k := range m.kernels {
		own := *k
		own.module = &c
		c.kernels[name] = &own
	}
	return &c
}

// place gives a variable of the device its address and its value.
func (m *Module) place(v *ptx.Variable) {
	if v.Space != "global" && v.Space != "const" {
		return
	}
	at := (int64(len(m.variables.Bytes)) + int64(v.Align) - 1) &^ (int64(v.Align) - 1)
	m.variables.Bytes = append(m.variables.Bytes, make([]byte, at+v.Bytes-int64(len(m.variables.Bytes)))...)
	copy(m.variables.Bytes[at:], v.Init)
	m.places[v] = moduleBase + uint64(at)
}

// Kernels are the names of the kernels.
func (m *Module) Kernels() []string { return m.names }

// Kernel returns the kernel of that name, nil if there is none.
func (m *Module) Kernel(name string) *Kernel { return m.kernels[name] }

// Kernel is a kernel that can run, in several launches at once.
type Kernel struct {
	Name        string
	SharedBytes int // static

	module        *Module
	f             *ptx.Function
	code          []instr
	registers     int // of the vector file, constants included
	tracked       int
	predicates    int
	constants     []constant
	specials      []special
	held          map[int32]bool // registers of asynchronous products
	async         bool           // units that need a fence read shared memory
	granule       uint           // shared memory is watched in pieces of 1 << granule bytes
	dynamicShared int64          // where it begins, from sharedBase on
}

// constant is a register that always holds the same.
type constant struct {
	register int32
	value    uint64
}

// special is a register that the place in the grid gives its value.
type special struct {
	register int32
	name     string
}

// instr is an instruction that can run.
type instr struct {
	op      op
	kind    kind
	guard   int32 // predicate, -1 for none
	negated bool
	run     func(w *warp, in *instr, mask uint32) // for opRun
	lane    func(a, b, c uint64) uint64           // for opLane
	d       int32
	a, b, c int32
	p, q    int32 // predicates: a result and an operand
	notQ    bool
	compare comparison
	list    []int32 // registers of vectors, or all operands of products
	more    []int32
	imm     uint64
	mask    uint64 // bits of the destination
	size    int    // bytes of an element
	count   int    // elements
	signed  bool
	space   space
	cached  bool // ld.global.nc

	target, join int32 // of branches; join -1: the end
	members      int32 // register with the lanes that must come, -1 for all

	held          []held    // registers of products
	checks, marks []tracked // registers whose values may not be there
	at            *ptx.Instruction
}

// tracked is a register that may be read before it is written.
type tracked struct {
	slot  int
	name  string
	guard bool // it says which lanes take part
}

// kind says what an instruction does to the flow of control.
type kind uint8

const (
	kindPlain kind = iota
	kindBranch
	kindExit
	kindBarrier    // of a block
	kindCollective // of lanes that wait for each other
	kindAligned    // of all lanes of a warp, at the same time
)

type space uint8

const (
	spaceGeneric space = iota
	spaceGlobal
	spaceShared
	spaceParam
	spaceConst
)

func (s space) String() string {
	return [...]string{"generic", "global", "shared", "param", "const"}[s]
}

// wrong is an error with the place of an instruction.
func (m *Module) wrong(in *ptx.Instruction, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s", m.file, in.Line, in, fmt.Sprintf(format, args...))
}
