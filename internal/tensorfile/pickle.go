package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Bounds of a program. One that builds a dictionary of a few tensors takes some hundred
// instructions.
const (
	maxProgram = 1 << 20 // bytes
	maxSteps   = 1 << 18
	maxStack   = 1 << 16
	maxMarks   = 64
	maxMemo    = 1 << 16
)

// Values on the stack are nil, bool, int64, float64, string, tuple, *list, *dict, global,
// storage and view.
type (
	tuple []any
	list  struct{ items []any }
	dict  struct {
		values  map[string]any
		ordered bool // made by OrderedDict, which may get a state
	}
)

// nameOf describes a value in messages.
func nameOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a truth value"
	case int64, float64:
		return "a number"
	case string:
		return "a text"
	case tuple:
		return "a tuple"
	case *list:
		return "a list"
	case *dict:
		return "a dictionary"
	case view:
		return "a tensor"
	case storage:
		return "a storage"
	case global:
		return v.String()
	}
	return fmt.Sprintf("%T", v)
}

func errorOf(name string, err error) error { return fmt.Errorf("%.100q: %w", name, err) }

// pickle runs a program on a stack.
type pickle struct {
	program  []byte
	storages archive
	at       int // of the next byte
	stack    []any
	marks    []int // heights of the stack
	memo     map[uint32]any
	err      error // the first one; what follows it does not count
}

// run returns what the program leaves on the stack.
func (p *pickle) run() (any, error) {
	if len(p.program) > maxProgram {
		return nil, limitf("data.pkl of %d bytes, %d are allowed", len(p.program), maxProgram)
	}
	p.memo = map[uint32]any{}
	for range maxSteps {
		start := p.at
		op := p.byte()
		if op == '.' && p.err == nil {
			if len(p.stack) != 1 || len(p.marks) != 0 || p.at != len(p.program) {
				return nil, formatf("data.pkl ends with %d values, %d marks and %d bytes to come", len(p.stack), len(p.marks), len(p.program)-p.at)
			}
			return p.stack[0], nil
		}
		p.step(op)
		if p.err != nil {
			return nil, fmt.Errorf("data.pkl, byte %d: %w", start, p.err)
		}
		if len(p.stack) > maxStack || len(p.marks) > maxMarks || len(p.memo) > maxMemo {
			return nil, limitf("data.pkl, byte %d: %d values, %d marks, %d remembered values", start, len(p.stack), len(p.marks), len(p.memo))
		}
	}
	return nil, limitf("data.pkl has more than %d instructions", maxSteps)
}

// step runs one instruction; they are named as in Python's pickletools.
func (p *pickle) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := p.byte(); v < 2 || v > 5 {
			p.fail(unsupportedf("protocol %d", v))
		}
	case 0x95: // FRAME
		p.take(8)
	case '(': // MARK
		p.marks = append(p.marks, len(p.stack))
	case 'N': // NONE
		p.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		p.push(op == 0x88)
	case 'K', 'M', 'J', 0x8a, 'G':
		p.number(op)
	case 'X', 0x8c:
		p.text(op)
	case '}': // EMPTY_DICT
		p.push(&dict{values: map[string]any{}})
	case ']': // EMPTY_LIST
		p.push(&list{})
	case ')': // EMPTY_TUPLE
		p.push(tuple{})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		p.push(tuple(p.pop(int(op) - 0x84)))
	case 't': // TUPLE
		p.push(tuple(p.popMark()))
	case 'a': // APPEND
		p.extend(p.pop(1))
	case 'e': // APPENDS
		p.extend(p.popMark())
	case 's': // SETITEM
		p.set(p.pop(2))
	case 'u': // SETITEMS
		p.set(p.popMark())
	case 'q': // BINPUT
		p.remember(uint32(p.byte()))
	case 'r': // LONG_BINPUT
		p.remember(binary.LittleEndian.Uint32(p.take(4)))
	case 0x94: // MEMOIZE
		p.remember(uint32(len(p.memo)))
	case 'h': // BINGET
		p.recall(uint32(p.byte()))
	case 'j': // LONG_BINGET
		p.recall(binary.LittleEndian.Uint32(p.take(4)))
	case 'c': // GLOBAL
		module := p.line()
		p.global(module, p.line())
	case 0x93: // STACK_GLOBAL
		names := p.pop(2)
		module, ok := names[0].(string)
		name, also := names[1].(string)
		if !ok || !also {
			p.fail(formatf("%s of %s is no name", nameOf(names[1]), nameOf(names[0])))
			return
		}
		p.global(module, name)
	case 'Q': // BINPERSID
		p.push(p.storage(p.pop(1)[0]))
	case 'R': // REDUCE
		v := p.pop(2)
		p.push(p.call(v[0], v[1]))
	case 'b': // BUILD
		p.build()
	default:
		p.fail(unsupportedf("instruction %#02x", op))
	}
}

func (p *pickle) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// take returns the next bytes of the program; zeros after an error.
func (p *pickle) take(n int) []byte {
	if n < 0 || n > len(p.program)-p.at {
		p.fail(formatf("it ends early"))
		return make([]byte, min(max(n, 0), 8))
	}
	p.at += n
	return p.program[p.at-n : p.at]
}

func (p *pickle) byte() byte { return p.take(1)[0] }

func (p *pickle) line() string {
	const longest = 256
	rest := string(p.program[p.at:min(p.at+longest, len(p.program))])
	text, _, ok := strings.Cut(rest, "\n")
	if !ok {
		p.fail(formatf("a name without an end"))
		return ""
	}
	p.at += len(text) + 1
	return text
}

func (p *pickle) push(v any) { p.stack = append(p.stack, v) }

// pop returns the topmost values, which lie above the topmost mark; Nones after an error.
func (p *pickle) pop(n int) []any {
	bottom := 0
	if len(p.marks) > 0 {
		bottom = p.marks[len(p.marks)-1]
	}
	if n > len(p.stack)-bottom {
		p.fail(formatf("%d values where %d are needed", len(p.stack)-bottom, n))
		return make([]any, n)
	}
	values := p.stack[len(p.stack)-n:]
	p.stack = p.stack[:len(p.stack)-n]
	return append([]any(nil), values...)
}

func (p *pickle) popMark() []any {
	if len(p.marks) == 0 {
		p.fail(formatf("no mark"))
		return nil
	}
	values := p.pop(len(p.stack) - p.marks[len(p.marks)-1])
	p.marks = p.marks[:len(p.marks)-1]
	return values
}

// top is the value that instructions change in place.
func (p *pickle) top() any {
	v := p.pop(1)[0]
	p.push(v)
	return v
}

func (p *pickle) number(op byte) {
	switch op {
	case 'K': // BININT1
		p.push(int64(p.byte()))
	case 'M': // BININT2
		p.push(int64(binary.LittleEndian.Uint16(p.take(2))))
	case 'J': // BININT
		p.push(int64(int32(binary.LittleEndian.Uint32(p.take(4)))))
	case 'G': // BINFLOAT
		p.push(math.Float64frombits(binary.BigEndian.Uint64(p.take(8))))
	default: // LONG1
		n := int(p.byte())
		if n > 8 {
			p.fail(unsupportedf("a number of %d bytes", n))
			return
		}
		var v uint64
		b := p.take(n)
		for i, c := range b {
			v |= uint64(c) << (8 * i)
		}
		if n > 0 && n < 8 && b[n-1]&0x80 != 0 {
			v |= ^uint64(0) << (8 * n)
		}
		p.push(int64(v))
	}
}

func (p *pickle) text(op byte) {
	n := 0
	if op == 'X' { // BINUNICODE
		n = int(binary.LittleEndian.Uint32(p.take(4)))
	} else { // SHORT_BINUNICODE
		n = int(p.byte())
	}
	b := p.take(n)
	if !utf8.Valid(b) {
		p.fail(formatf("a text that is not UTF-8"))
	}
	p.push(string(b))
}

func (p *pickle) remember(at uint32) { p.memo[at] = p.top() }

func (p *pickle) recall(at uint32) {
	v, ok := p.memo[at]
	if !ok {
		p.fail(formatf("nothing was remembered as %d", at))
	}
	p.push(v)
}

func (p *pickle) extend(values []any) {
	l, ok := p.top().(*list)
	if !ok {
		p.fail(formatf("a value is appended to %s", nameOf(p.top())))
		return
	}
	l.items = append(l.items, values...)
}

func (p *pickle) set(values []any) {
	d, ok := p.top().(*dict)
	if !ok || len(values)%2 != 0 {
		p.fail(formatf("%d keys and values for %s", len(values), nameOf(p.top())))
		return
	}
	for i := 0; i < len(values); i += 2 {
		key, ok := values[i].(string)
		if !ok {
			p.fail(unsupportedf("a dictionary with %s as a key", nameOf(values[i])))
			return
		}
		if _, twice := d.values[key]; twice {
			p.fail(formatf("a dictionary has the key %.100q twice", key))
			return
		}
		d.values[key] = values[i+1]
	}
}
