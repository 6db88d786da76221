package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// scope has the names of a pair of braces.
type scope struct {
	outer     *scope
	registers map[string]int  // those that were used, by name
	types     map[string]Type // declared registers
	ranges    []registerRange
	variables map[string]*Variable
	labels    map[string]int
	jumps     []jump
}

// registerRange is %r<count>.
type registerRange struct {
	prefix string
	count  uint64
	t      Type
}

// jump is an operand that names a label, which may come later.
type jump struct {
	name                 string
	instruction, operand int
	line                 int
}

func (p *parser) push() { p.scope = &scope{outer: p.scope} }

// pop ends a scope. Labels that it does not have may be those of the outer one.
func (p *parser) pop() error {
	s := p.scope
	p.scope = s.outer
	for _, j := range s.jumps {
		if target, ok := s.labels[j.name]; ok {
			p.f.Body[j.instruction].Operands[j.operand].Target = target
		} else if s.outer.outer == nil {
			return fmt.Errorf("%s of line %d is neither a label nor anything else that is known", j.name, j.line)
		} else {
			s.outer.jumps = append(s.outer.jumps, j)
		}
	}
	return nil
}

func (s *scope) label(name string, at int) error {
	if _, twice := s.labels[name]; twice {
		return fmt.Errorf("a second label %s", name)
	}
	if s.labels == nil {
		s.labels = map[string]int{}
	}
	s.labels[name] = at
	return nil
}

// variable finds memory by its name.
func (s *scope) variable(name string) *Variable {
	for ; s != nil; s = s.outer {
		if v := s.variables[name]; v != nil {
			return v
		}
	}
	return nil
}

// register finds a register by its name, and gives it a number at its first use.
func (p *parser) register(name string) (int, bool, error) {
	for s := p.scope; s != nil; s = s.outer {
		if n, used := s.registers[name]; used {
			return n, true, nil
		}
		t := s.types[name]
		for _, r := range s.ranges {
			digits, ok := strings.CutPrefix(name, r.prefix)
			if !ok || t != NoType {
				continue
			}
			n, err := number(token{kind: '0', text: digits})
			if err == nil && n < r.count && (len(digits) == 1 || digits[0] != '0') {
				t = r.t
			}
		}
		if t == NoType {
			continue
		}
		if len(p.f.Registers) == maxRegisters {
			return 0, false, errors.New("too many registers")
		}
		if s.registers == nil {
			s.registers = map[string]int{}
		}
		n := len(p.f.Registers)
		s.registers[name] = n
		p.f.Registers = append(p.f.Registers, Register{name, t})
		return n, true, nil
	}
	return 0, false, nil
}

// registers reads what follows .reg.
func (p *parser) registers() error {
	name, err := p.word()
	if err != nil {
		return err
	}
	t, ok := TypeOf(strings.TrimPrefix(name, "."))
	if !ok {
		return fmt.Errorf("registers of type %q are not understood", name)
	}
	for {
		name, err := p.word()
		if err != nil {
			return err
		}
		if p.accept('<') {
			count, err := p.small(math.MaxUint32)
			if err != nil {
				return err
			}
			if err := p.expect('>'); err != nil {
				return err
			}
			p.scope.ranges = append(p.scope.ranges, registerRange{name, uint64(count), t})
		} else {
			if p.scope.types == nil {
				p.scope.types = map[string]Type{}
			}
			p.scope.types[name] = t
		}
		if !p.accept(',') {
			return p.expect(';')
		}
	}
}

// declare reads a variable, of parameters without the semicolon.
func (p *parser) declare(to *[]*Variable, extern bool) error {
	v := &Variable{Line: p.peek().line, Extern: extern}
	for p.peek().kind == 'w' && p.peek().text[0] == '.' {
		word := p.next().text[1:]
		t, isType := TypeOf(word)
		switch {
		case isType && v.Type == NoType:
			v.Type = t
		case word == "param" || word == "shared" || word == "global" || word == "const" || word == "local":
			v.Space = word
		case word == "align":
			n, err := p.small(1 << 16)
			if err != nil {
				return err
			}
			if n == 0 || n&(n-1) != 0 {
				return fmt.Errorf("an alignment of %d", n)
			}
			v.Align = int(n)
		case word == "ptr": // .ptr .global .align 8: says what a pointer points to
			for p.peek().text == ".global" || p.peek().text == ".shared" || p.peek().text == ".const" || p.peek().text == ".local" {
				p.next()
			}
			if p.peek().text == ".align" {
				p.next()
				p.next()
			}
		default:
			return fmt.Errorf(".%s of a variable is not understood", word)
		}
	}
	name, err := p.word()
	if err != nil {
		return err
	}
	v.Name = name
	if v.Space == "" || v.Type.Bits() < 8 {
		return fmt.Errorf("variable %s has no space or no type", name)
	}
	size := int64(v.Type.Bits() / 8)
	v.Align = max(v.Align, int(size))
	v.Bytes = size
	for p.accept('[') {
		if p.accept(']') {
			v.Bytes = 0
			continue
		}
		n, err := p.small(maxVariable)
		if err != nil {
			return err
		}
		if v.Bytes *= n; v.Bytes > maxVariable {
			return fmt.Errorf("variable %s has more than %d bytes", name, maxVariable)
		}
		if err := p.expect(']'); err != nil {
			return err
		}
	}
	if v.Bytes == 0 && !(v.Extern && v.Space == "shared") {
		return fmt.Errorf("variable %s has no bytes", name)
	}
	if p.accept('=') {
		if v.Space != "global" && v.Space != "const" {
			return fmt.Errorf("variable %s of space %s has a value", name, v.Space)
		}
		if err := p.initial(v); err != nil {
			return err
		}
	}
	if p.scope.variables == nil {
		p.scope.variables = map[string]*Variable{}
	}
	if p.scope.variables[name] != nil {
		return fmt.Errorf("a second variable %s", name)
	}
	p.scope.variables[name] = v
	*to = append(*to, v)
	if v.Space == "param" {
		return nil
	}
	return p.expect(';')
}

// initial reads the value of a variable, or the values of its first elements.
func (p *parser) initial(v *Variable) error {
	if v.Type.Bits() > 64 {
		return fmt.Errorf("the value of %s is not understood", v.Name)
	}
	depth := 0
	for {
		for p.accept('{') {
			depth++
		}
		o, err := p.immediate()
		if err != nil {
			return err
		}
		if o.Kind == Float32 && v.Type.Bits() == 64 {
			o.Bits = math.Float64bits(float64(math.Float32frombits(uint32(o.Bits))))
		}
		v.Init = binary.LittleEndian.AppendUint64(v.Init, o.Bits)[:len(v.Init)+v.Type.Bits()/8]
		if int64(len(v.Init)) > v.Bytes {
			return fmt.Errorf("variable %s has more values than elements", v.Name)
		}
		for depth > 0 && p.accept('}') {
			depth--
		}
		if depth == 0 {
			return nil
		}
		if err := p.expect(','); err != nil {
			return err
		}
	}
}
