package parse

// pythonic reads calls written as a Python list: [f(a=1), g(b="x")].
type pythonic struct {
	c      *calls
	bare   bool   // nothing marks the beginning: only calls of declared tools count
	closer string // that may follow
	state  pythonicState
	name   []byte
	key    []byte
	told   bool // the call was announced
	value  value
	buf    []byte
	close  expect
}

type pythonicState uint8

const (
	pythonicStart  pythonicState = iota // before the list
	pythonicCall                        // before a name
	pythonicName                        // in a name
	pythonicKey                         // before or in a keyword
	pythonicEquals                      // after a keyword
	pythonicValue
	pythonicNextArg  // after a value
	pythonicNextCall // after a call
	pythonicTail     // before the closing mark
)

func (p *pythonic) put(b byte) verdict {
	switch p.state {
	case pythonicName, pythonicKey, pythonicEquals:
		return p.words(b)
	case pythonicValue:
		return p.inValue(b)
	case pythonicTail:
		_, v := p.close.put(b, p.closer)
		return ending(v)
	}
	if space(b) {
		return more
	}
	switch p.state {
	case pythonicStart:
		if b == '[' {
			p.state = pythonicCall
			return more
		}
	case pythonicCall:
		if wordByte(b) && (b < '0' || b > '9') {
			p.name, p.state = append(p.name[:0], b), pythonicName
			return more
		}
		if b == ']' && p.c.told {
			return p.listEnd()
		}
	case pythonicNextArg:
		switch b {
		case ',':
			p.key, p.state = p.key[:0], pythonicKey
			return more
		case ')':
			return p.callEnd()
		}
	case pythonicNextCall:
		switch b {
		case ',':
			p.state = pythonicCall
			return more
		case ']':
			return p.listEnd()
		}
	}
	return bad
}

// words reads up to the value of the first or next argument.
func (p *pythonic) words(b byte) verdict {
	switch p.state {
	case pythonicName:
		switch {
		case wordByte(b) || b == '.' || b == '-':
			if p.name = append(p.name, b); len(p.name) > maxName {
				return bad
			}
			return more
		case b != '(' || p.bare && !p.c.tools.has(string(p.name)):
			return bad
		}
		p.key, p.told, p.state = p.key[:0], false, pythonicKey
		return more
	case pythonicKey:
		switch {
		case wordByte(b):
			if p.key = append(p.key, b); len(p.key) > maxName {
				return bad
			}
			return more
		case len(p.key) == 0 && space(b):
			return more
		case len(p.key) == 0 && b == ')':
			return p.callEnd()
		case len(p.key) == 0:
			return bad
		}
		p.state = pythonicEquals
	}
	switch {
	case space(b):
		return more
	case b != '=':
		return bad
	}
	if p.key[0] >= '0' && p.key[0] <= '9' {
		return bad
	}
	p.buf = append(p.buf[:0], '{')
	if p.told {
		p.buf = append(p.buf[:0], ',', ' ')
	}
	p.buf = append(append(append(p.buf, '"'), p.key...), '"', ':', ' ')
	p.value.reset()
	p.value.python = true
	p.state = pythonicValue
	return more
}

// inValue reads a byte of a value. The call is announced with its first value.
func (p *pythonic) inValue(b byte) verdict {
	var v verdict
	at := len(p.buf)
	p.buf, v = p.value.put(p.buf, b)
	if v == bad {
		return bad
	}
	if len(p.buf) > at {
		if !p.told {
			p.c.begin(string(p.name), "")
			p.told = true
		}
		p.c.args(p.buf...)
		p.buf = p.buf[:0]
	}
	switch v {
	case done:
		p.state = pythonicNextArg
	case before:
		p.state = pythonicNextArg
		return p.put(b)
	}
	return more
}

func (p *pythonic) callEnd() verdict {
	if !p.told {
		p.c.begin(string(p.name), "")
		p.c.args('{')
	}
	p.told = false
	p.c.args('}')
	p.c.finish()
	p.state = pythonicNextCall
	return more
}

func (p *pythonic) listEnd() verdict {
	if p.closer == "" {
		return done
	}
	p.state = pythonicTail
	return more
}

func (p *pythonic) end() {
	if p.state == pythonicValue && p.told {
		p.c.args(append(p.buf, p.value.cut()...)...)
	}
}
