package ptx

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// instruction reads one, with its predicate.
func (p *parser) instruction() error {
	in := Instruction{Line: p.peek().line, Source: p.source, Guard: -1}
	if p.accept('@') {
		in.Negated = p.accept('!')
		name, err := p.word()
		if err != nil {
			return err
		}
		n, ok, err := p.register(name)
		if err != nil {
			return err
		}
		if !ok || p.f.Registers[n].Type != Pred {
			return fmt.Errorf("%s is no predicate", name)
		}
		in.Guard = n
	}
	name, err := p.word()
	if err != nil {
		return err
	}
	words := strings.Split(name, ".")
	if words[0] == "" {
		return fmt.Errorf("%q, where an instruction should be", name)
	}
	in.Opcode, in.Modifiers = words[0], words[1:]
	for p.peek().kind != ';' {
		if len(in.Operands) > 0 {
			if err := p.expect(','); err != nil {
				return err
			}
		}
		o, err := p.operand(0)
		if err != nil {
			return err
		}
		if o.Kind == Label {
			p.scope.jumps = append(p.scope.jumps, jump{o.Name, len(p.f.Body), len(in.Operands), in.Line})
		}
		in.Operands = append(in.Operands, o)
	}
	p.f.Body = append(p.f.Body, in)
	return p.expect(';')
}

// operand reads one, with what a bar joins to it.
func (p *parser) operand(depth int) (Operand, error) {
	if depth > maxNesting {
		return Operand{}, errors.New("operands are nested too deeply")
	}
	o, err := p.single(depth)
	if err != nil || !p.accept('|') {
		return o, err
	}
	second, err := p.single(depth)
	if o.Kind == Label || second.Kind == Label {
		return o, fmt.Errorf("%s|%s is not understood", o.Name, second.Name)
	}
	return Operand{Kind: Pair, Elements: []Operand{o, second}}, err
}

func (p *parser) single(depth int) (Operand, error) {
	switch t := p.peek(); {
	case p.accept('{'):
		all, err := p.elements('}', depth)
		return Operand{Kind: Vector, Elements: all}, err
	case p.accept('['):
		return p.memory(depth)
	case p.accept('!'):
		o, err := p.single(depth + 1)
		if o.Kind != InRegister {
			return o, errors.Join(err, errors.New("! wants a register"))
		}
		o.Negated = !o.Negated
		return o, err
	case t.kind == '0' || t.kind == '-':
		return p.immediate()
	case t.kind == 'w':
		return p.named()
	default:
		p.next()
		return Operand{}, fmt.Errorf("%s, where an operand should be", t)
	}
}

// elements reads operands up to a sign.
func (p *parser) elements(end byte, depth int) (all []Operand, err error) {
	for !p.accept(end) {
		if len(all) > 0 {
			if err := p.expect(','); err != nil {
				return nil, err
			}
		}
		o, err := p.operand(depth + 1)
		if err != nil {
			return nil, err
		}
		if o.Kind == Label {
			return nil, fmt.Errorf("%s is not known", o.Name)
		}
		all = append(all, o)
	}
	return all, nil
}

// memory reads an address after its bracket.
func (p *parser) memory(depth int) (Operand, error) {
	o := Operand{Kind: Memory}
	base, err := p.operand(depth + 1)
	if err != nil {
		return o, err
	}
	switch base.Kind {
	case InRegister, Symbol, Integer:
	default:
		return o, fmt.Errorf("an address that begins with %s is not understood", strconv.Quote(base.Name))
	}
	if p.accept('+') {
		add, err := p.immediate()
		if err != nil {
			return o, err
		}
		o.Bits = add.Bits
	}
	o.Bits += base.Bits
	if base.Kind == Integer {
		base.Bits = 0
	}
	o.Elements = []Operand{base}
	if p.accept(',') {
		more, err := p.elements(']', depth)
		o.Elements = append(o.Elements, more...)
		return o, err
	}
	return o, p.expect(']')
}

// named reads an operand that is a word.
func (p *parser) named() (Operand, error) {
	name, _ := p.word() // the caller saw it
	if name == "_" {
		return Operand{Kind: Discard}, nil
	}
	n, ok, err := p.register(name)
	if err != nil {
		return Operand{}, err
	}
	if ok {
		return Operand{Kind: InRegister, Register: n, Name: name}, nil
	}
	if v := p.scope.variable(name); v != nil {
		o := Operand{Kind: Symbol, Variable: v, Name: name}
		if p.accept('+') {
			add, err := p.immediate()
			if err != nil {
				return o, err
			}
			o.Bits = add.Bits
		}
		return o, nil
	}
	if special, ok := strings.CutPrefix(name, "%"); ok {
		return Operand{Kind: Special, Name: special}, nil
	}
	if name == "WARP_SZ" {
		return Operand{Kind: Integer, Bits: 32}, nil
	}
	return Operand{Kind: Label, Name: name}, nil
}

// immediate reads a number.
func (p *parser) immediate() (Operand, error) {
	minus := p.accept('-')
	t := p.next()
	if t.kind == '0' && len(t.text) > 2 && t.text[0] == '0' && strings.ContainsRune("fFdD", rune(t.text[1])) {
		kind, digits := Float32, 8
		if t.text[1] == 'd' || t.text[1] == 'D' {
			kind, digits = Float64, 16
		}
		bits, err := strconv.ParseUint(t.text[2:], 16, 64)
		if err != nil || len(t.text) != 2+digits {
			return Operand{}, fmt.Errorf("the number %s is not understood", t)
		}
		if minus {
			bits ^= 1 << (4*digits - 1)
		}
		return Operand{Kind: kind, Bits: bits}, nil
	}
	v, err := number(t)
	if minus {
		v = -v
	}
	return Operand{Kind: Integer, Bits: v}, err
}
