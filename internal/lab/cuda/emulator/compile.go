package emulator

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// compiler makes instructions that can run. The first error stays.
type compiler struct {
	m     *Module
	k     *Kernel
	f     *ptx.Function
	place []int32 // of registers: in the file of vectors, or of predicates
	known map[uint64]int32
	named map[string]int32

	at    *ptx.Instruction
	out   *instr
	words []string // modifiers that were not looked at
	err   error
}

func (m *Module) compile(f *ptx.Function, outer []*ptx.Variable) (*Kernel, error) {
	k := &Kernel{Name: f.Name, module: m, f: f, granule: 4, held: map[int32]bool{}}
	c := &compiler{m: m, k: k, f: f, known: map[uint64]int32{}, named: map[string]int32{}}
	if err := c.shared(outer); err != nil {
		return nil, err
	}
	k.predicates = 1 // the first one takes results that nobody wants
	k.registers = 1
	for _, r := range f.Registers {
		switch {
		case r.Type == ptx.Pred:
			c.place = append(c.place, int32(k.predicates))
			k.predicates++
		case r.Type.Bits() > 64:
			return nil, fmt.Errorf("%s:%d: kernel %s: registers of 128 bits are not understood", m.file, f.Line, f.Name)
		default:
			c.place = append(c.place, int32(k.registers))
			k.registers++
		}
	}
	k.code = make([]instr, len(f.Body)+1)
	for i := range f.Body {
		if err := c.instruction(&f.Body[i], &k.code[i]); err != nil {
			return nil, err
		}
	}
	// What runs over the end has ended.
	k.code[len(f.Body)] = instr{kind: kindExit, guard: -1, at: &ptx.Instruction{Line: f.Line, Opcode: "exit"}}
	flow := newFlow(k)
	flow.joins()
	flow.track(f, c.place)
	k.hold(c.place)
	return k, nil
}

// shared gives static shared memory its place, and dynamic shared memory the place behind.
func (c *compiler) shared(outer []*ptx.Variable) error {
	var used int64
	var dynamic []*ptx.Variable
	for _, v := range slices.Concat(outer, c.f.Variables) {
		switch {
		case v.Space == "shared" && v.Bytes == 0:
			dynamic = append(dynamic, v)
		case v.Space == "shared":
			used = (used + int64(v.Align) - 1) &^ (int64(v.Align) - 1)
			c.m.places[v] = uint64(sharedBase + used)
			used += v.Bytes
		case v.Space == "local" || v.Space == "param":
			return fmt.Errorf("%s:%d: variable %s: .%s is not understood", c.m.file, v.Line, v.Name, v.Space)
		case c.m.places[v] == 0:
			c.m.place(v)
		}
		if used > mostShared {
			return fmt.Errorf("%s:%d: kernel %s has more than %d bytes of shared memory", c.m.file, v.Line, c.f.Name, mostShared)
		}
	}
	c.k.SharedBytes = int(used)
	align := int64(16)
	for _, v := range dynamic {
		align = max(align, int64(v.Align))
	}
	c.k.dynamicShared = (used + align - 1) &^ (align - 1)
	for _, v := range dynamic {
		c.m.places[v] = uint64(sharedBase + c.k.dynamicShared)
	}
	return nil
}

func (c *compiler) instruction(at *ptx.Instruction, out *instr) error {
	c.at, c.out, c.words = at, out, slices.Clone(at.Modifiers)
	*out = instr{at: at, guard: -1, members: -1, mask: math.MaxUint64}
	if at.Guard >= 0 {
		out.guard, out.negated = c.place[at.Guard], at.Negated
	}
	compile, ok := opcodes[at.Opcode]
	if !ok {
		return c.m.wrong(at, "the opcode is not understood")
	}
	compile(c)
	if len(c.words) > 0 {
		c.fail(".%s is not understood", strings.Join(c.words, "."))
	}
	return c.err
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = c.m.wrong(c.at, format, args...)
	}
}

// has takes a modifier, if it is there.
func (c *compiler) has(word string) bool {
	i := slices.Index(c.words, word)
	if i < 0 {
		return false
	}
	c.words = slices.Delete(c.words, i, i+1)
	return true
}

// one takes the modifier that is there of several; "" if there is none.
func (c *compiler) one(words ...string) string {
	for _, w := range words {
		if c.has(w) {
			return w
		}
	}
	return ""
}

// typed takes the first modifier that is a type.
func (c *compiler) typed() ptx.Type {
	for i, w := range c.words {
		if t, ok := ptx.TypeOf(w); ok {
			c.words = slices.Delete(c.words, i, i+1)
			return t
		}
	}
	c.fail("no type")
	return ptx.B32
}

// operand returns one that must be there.
func (c *compiler) operand(i int) ptx.Operand {
	if i >= len(c.at.Operands) {
		c.fail("operand %d is missing", i+1)
		return ptx.Operand{}
	}
	return c.at.Operands[i]
}

// operands says how many there must be.
func (c *compiler) operands(n int) {
	if len(c.at.Operands) != n {
		c.fail("%d operands, not %d", len(c.at.Operands), n)
	}
}

// result is the register that an operand names, to be written.
func (c *compiler) result(o ptx.Operand) int32 {
	switch {
	case o.Kind == ptx.Discard:
		return 0
	case o.Kind == ptx.InRegister && c.f.Registers[o.Register].Type != ptx.Pred:
		return c.place[o.Register]
	}
	c.fail("a result that is no register")
	return 0
}

// width is the size of the register that an operand names.
func (c *compiler) width(o ptx.Operand) int {
	if o.Kind == ptx.InRegister {
		return c.f.Registers[o.Register].Type.Bits()
	}
	return 64
}

// ones has that many ones.
func ones(n int) uint64 { return math.MaxUint64 >> (64 - n) }

// value is a register that holds an operand.
func (c *compiler) value(o ptx.Operand, t ptx.Type) int32 {
	switch o.Kind {
	case ptx.InRegister:
		if r := c.f.Registers[o.Register]; r.Type == ptx.Pred || o.Negated || r.Type.Bits() < t.Bits() {
			break
		}
		return c.place[o.Register]
	case ptx.Integer:
		if t.Kind() == ptx.Float && t.Bits() >= 32 && o.Bits != 0 {
			break
		}
		return c.constant(o.Bits & ones(min(t.Bits(), 64)))
	case ptx.Float32:
		if t.Bits() == 64 {
			return c.constant(math.Float64bits(float64(math.Float32frombits(uint32(o.Bits)))))
		}
		return c.constant(o.Bits)
	case ptx.Float64:
		if t.Bits() == 64 {
			return c.constant(o.Bits)
		}
		return c.constant(uint64(math.Float32bits(float32(math.Float64frombits(o.Bits)))))
	case ptx.Symbol:
		return c.constant(c.address(o.Variable) + o.Bits)
	case ptx.Special:
		return c.special(o.Name)
	}
	c.fail("an operand is not understood as .%s", t)
	return 0
}

// address returns the address of a variable in its space.
func (c *compiler) address(v *ptx.Variable) uint64 {
	if v.Space == "param" {
		return uint64(v.Offset)
	}
	return c.m.places[v]
}

func (c *compiler) constant(v uint64) int32 {
	if n, ok := c.known[v]; ok {
		return n
	}
	n := c.register()
	c.known[v] = n
	c.k.constants = append(c.k.constants, constant{n, v})
	return n
}

func (c *compiler) register() int32 {
	c.k.registers++
	return int32(c.k.registers - 1)
}

func (c *compiler) special(name string) int32 {
	if !isSpecial(name) {
		c.fail("%%%s is not understood", name)
	}
	if n, ok := c.named[name]; ok {
		return n
	}
	n := c.register()
	c.named[name] = n
	c.k.specials = append(c.k.specials, special{n, name})
	return n
}

// predicate is one that an operand names, to be read or written.
func (c *compiler) predicate(o ptx.Operand) (n int32, negated bool) {
	switch {
	case o.Kind == ptx.Discard:
		return 0, false
	case o.Kind == ptx.InRegister && c.f.Registers[o.Register].Type == ptx.Pred:
		return c.place[o.Register], o.Negated
	}
	c.fail("an operand that is no predicate")
	return 0, false
}

// vector is the elements of an operand, or the operand itself, as registers of n.
func (c *compiler) vector(o ptx.Operand, n int, each func(o ptx.Operand) int32) []int32 {
	all := []ptx.Operand{o}
	if o.Kind == ptx.Vector {
		all = o.Elements
	}
	if len(all) != n {
		c.fail("%d values, not %d", len(all), n)
	}
	out := make([]int32, len(all))
	for i, o := range all {
		out[i] = each(o)
	}
	return out
}

// memory takes an address: its register and what is added to it.
func (c *compiler) memory(o ptx.Operand) (register int32, offset uint64) {
	if o.Kind != ptx.Memory || len(o.Elements) != 1 {
		c.fail("an operand that is no address")
		return 0, 0
	}
	return c.base(o)
}

// base is the first part of an address.
func (c *compiler) base(o ptx.Operand) (register int32, offset uint64) {
	switch b := o.Elements[0]; b.Kind {
	case ptx.InRegister:
		if c.width(b) < 32 {
			c.fail("an address of %d bits", c.width(b))
		}
		return c.value(b, ptx.U32), o.Bits
	case ptx.Symbol:
		return c.constant(c.address(b.Variable)), o.Bits
	default:
		return c.constant(0), o.Bits
	}
}
