package ptx

import (
	"errors"
	"fmt"
	"math"
)

// Most of what a module may have, far beyond what a compiler makes: bad input takes no
// more memory than these.
const (
	maxText      = 64 << 20
	maxRegisters = 1 << 16 // of a function
	maxVariable  = 1 << 30 // bytes
	maxNesting   = 64
)

// Parse reads a module. Errors begin with the name of the file and the line.
func Parse(name string, text []byte) (*Module, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%s: PTX of %d bytes is too long", name, len(text))
	}
	tokens, err := lex(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	p := &parser{tokens: tokens, module: &Module{Name: name}, files: map[string]string{}}
	p.scope = &scope{}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, p.tokens[max(p.at-1, 0)].line, err)
	}
	return p.module, nil
}

type parser struct {
	tokens []token
	at     int
	module *Module
	files  map[string]string // by the numbers of .file
	scope  *scope
	f      *Function
	source Location
}

// peek is the next token, which is there until the end.
func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != 'e' {
		p.at++
	}
	return t
}

// accept takes a sign if it comes next.
func (p *parser) accept(sign byte) bool {
	if p.peek().kind != sign || sign == 'e' {
		return false
	}
	p.at++
	return true
}

func (p *parser) expect(sign byte) error {
	if p.accept(sign) {
		return nil
	}
	return fmt.Errorf("%s, where %q should be", p.next(), sign)
}

func (p *parser) word() (string, error) {
	t := p.next()
	if t.kind != 'w' {
		return "", fmt.Errorf("%s, where a name should be", t)
	}
	return t.text, nil
}

// small reads a number from 0 to most.
func (p *parser) small(most int64) (int64, error) {
	t := p.next()
	v, err := number(t)
	if err != nil {
		return 0, err
	}
	if v > uint64(most) {
		return 0, fmt.Errorf("%s is more than %d", t, most)
	}
	return int64(v), nil
}

func (p *parser) parse() error {
	for {
		t := p.peek()
		if t.kind == 'e' {
			break
		}
		p.at++
		if t.kind != 'w' {
			return fmt.Errorf("%s is not understood", t)
		}
		var err error
		switch t.text {
		case ".version":
			p.module.Version = p.next().text
		case ".target":
			if p.module.Target, err = p.word(); err == nil {
				for p.accept(',') && err == nil {
					_, err = p.word() // such as debug
				}
			}
		case ".address_size":
			var bits int64
			if bits, err = p.small(64); err == nil && bits != 64 {
				err = fmt.Errorf("addresses of %d bits", bits)
			}
			p.module.AddressSize = int(bits)
		case ".file":
			err = p.file()
		case ".visible", ".weak", ".extern":
			if p.peek().text == ".entry" {
				continue
			}
			err = p.declare(&p.module.Variables, t.text == ".extern")
		case ".entry":
			err = p.entry()
		case ".global", ".const", ".shared":
			p.at--
			err = p.declare(&p.module.Variables, false)
		default:
			err = fmt.Errorf("%s is not understood", t)
		}
		if err != nil {
			return err
		}
	}
	if p.module.Version == "" || p.module.Target == "" {
		return errors.New("no .version and .target: this is no PTX")
	}
	return nil
}

func (p *parser) file() error {
	n, name := p.next(), p.next()
	if n.kind != '0' || name.kind != '"' {
		return errors.New(".file wants a number and a name")
	}
	p.files[n.text] = name.text
	for p.accept(',') { // time and size
		p.next()
	}
	return nil
}

// entry reads a kernel.
func (p *parser) entry() error {
	name, err := p.word()
	if err != nil {
		return err
	}
	if p.module.Function(name) != nil {
		return fmt.Errorf("a second kernel %s", name)
	}
	f := &Function{Name: name, Line: p.tokens[p.at-1].line}
	p.f, p.source = f, Location{}
	p.push()
	if p.accept('(') {
		for !p.accept(')') {
			if len(f.Params) > 0 {
				if err := p.expect(','); err != nil {
					return err
				}
			}
			if err := p.declare(&f.Params, false); err != nil {
				return err
			}
			v := f.Params[len(f.Params)-1]
			if v.Space != "param" || v.Bytes == 0 {
				return fmt.Errorf("parameter %s has no size, or is none", v.Name)
			}
			v.Offset = (f.ParamBytes + int64(v.Align) - 1) &^ (int64(v.Align) - 1)
			if f.ParamBytes = v.Offset + v.Bytes; f.ParamBytes > 1<<15 {
				return errors.New("more than 32 KiB of parameters")
			}
		}
	}
	for p.peek().kind == 'w' {
		if err := p.performance(f); err != nil {
			return err
		}
	}
	if err := p.expect('{'); err != nil {
		return err
	}
	if err := p.block(0); err != nil {
		return err
	}
	if err := p.pop(); err != nil {
		return err
	}
	p.module.Functions = append(p.module.Functions, f)
	p.f = nil
	return nil
}

// performance reads what stands between a kernel's parameters and its body.
func (p *parser) performance(f *Function) error {
	name := p.next().text
	sizes := func(to *[3]int) error {
		*to = [3]int{1, 1, 1}
		for i := range 3 {
			if i > 0 && !p.accept(',') {
				break
			}
			n, err := p.small(1 << 16)
			if err != nil {
				return err
			}
			to[i] = int(n)
		}
		return nil
	}
	switch name {
	case ".maxntid":
		return sizes(&f.MaxThreads)
	case ".reqntid":
		f.Required = true
		return sizes(&f.MaxThreads)
	case ".reqnctapercluster":
		return sizes(&f.Cluster)
	case ".minnctapersm", ".maxnreg", ".maxclusterrank":
		_, err := p.small(1 << 16)
		return err
	case ".explicitcluster", ".noreturn":
		return nil
	}
	return fmt.Errorf("%s is not understood", name)
}

// block reads a body, or a part of one in braces, which has names of its own.
func (p *parser) block(depth int) error {
	if depth > maxNesting {
		return errors.New("braces are nested too deeply")
	}
	for {
		t := p.peek()
		switch {
		case p.accept('}'):
			return nil
		case p.accept(';'):
		case p.accept('{'):
			p.push()
			if err := p.block(depth + 1); err != nil {
				return err
			}
			if err := p.pop(); err != nil {
				return err
			}
		case t.kind == 'w' && p.tokens[p.at+1].kind == ':':
			p.at += 2
			if err := p.scope.label(t.text, len(p.f.Body)); err != nil {
				return err
			}
		case t.kind == 'w' && t.text[0] == '.':
			if err := p.directive(); err != nil {
				return err
			}
		case t.kind == 'w' || t.kind == '@':
			if err := p.instruction(); err != nil {
				return err
			}
		default:
			p.next()
			return fmt.Errorf("%s, where an instruction should be", t)
		}
	}
}

func (p *parser) directive() error {
	t := p.next()
	switch t.text {
	case ".reg":
		return p.registers()
	case ".shared", ".local", ".global", ".const":
		p.at--
		return p.declare(&p.f.Variables, false)
	case ".pragma":
		if p.next().kind != '"' {
			return errors.New(".pragma wants a text")
		}
		return p.expect(';')
	case ".file":
		return p.file()
	case ".loc":
		file, line := p.next(), p.next()
		n, err := number(line)
		if err != nil {
			return err
		}
		p.source = Location{p.files[file.text], int(n & math.MaxInt32)}
		if _, err := number(p.next()); err != nil { // the column
			return err
		}
		for p.accept(',') { // function_name label, inlined_at file line column
			for p.peek().line == line.line && p.peek().kind != ',' && p.peek().kind != 'e' {
				p.next()
			}
		}
		return nil
	}
	return fmt.Errorf("%s is not understood", t)
}
