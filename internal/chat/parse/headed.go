package parse

import "strings"

// headFormat is a way to write calls as a header with the name and an object with
// the arguments.
type headFormat struct {
	section, sectionEnd string // around all calls; may be empty
	item, itemEnd       string // around one
	fence               string // that may stand between arguments and itemEnd
	// header reads what stands between item and the opening bracket.
	header func(text string) (name, id string, ok bool)
	// lists says that JSON objects may follow item instead, and listEnd them.
	lists   bool
	listEnd string
}

// headed reads calls of such a format.
type headed struct {
	c      *calls
	f      *headFormat
	state  headedState
	header []byte
	value  value
	buf    []byte
	next   expect
	list   *objects
}

type headedState uint8

const (
	headedItem   headedState = iota // before an item
	headedHeader                    // in its header
	headedArgs
	headedEnd // before its end
	headedList
)

// maxHeader limits a header, in bytes: a name and what stands around it.
const maxHeader = 2 * maxName

func newHeaded(c *calls, f *headFormat, hit int) *headed {
	h := &headed{c: c, f: f, state: headedHeader}
	if f.section != "" && hit == 0 {
		h.state = headedItem
	}
	return h
}

func (h *headed) put(b byte) verdict {
	switch h.state {
	case headedItem:
		return h.item(b)
	case headedHeader:
		return h.inHeader(b)
	case headedArgs:
		var v verdict
		h.buf, v = h.value.put(h.buf[:0], b)
		h.c.args(h.buf...)
		if v != done {
			return v
		}
		h.c.finish()
		if h.f.itemEnd == "" {
			return done
		}
		h.state = headedEnd
		return more
	case headedEnd:
		hit, v := h.next.put(b, h.f.itemEnd, h.f.fence+h.f.itemEnd)
		if v == done && hit >= 0 {
			h.c.structure()
			h.state = headedItem
			return more
		}
		return v
	}
	return h.list.put(b)
}

func (h *headed) item(b byte) verdict {
	wanted := []string{h.f.item}
	if h.f.sectionEnd != "" {
		wanted = append(wanted, h.f.sectionEnd)
	}
	hit, v := h.next.put(b, wanted...)
	switch {
	case v != done:
		if h.c.told {
			return ending(v)
		}
		return v
	case hit == 0:
		h.header, h.state = h.header[:0], headedHeader
		return more
	case h.c.told:
		return done
	}
	return bad
}

func (h *headed) inHeader(b byte) verdict {
	if h.f.lists && (b == '[' || b == '{') && strings.TrimSpace(string(h.header)) == "" {
		h.list = &objects{c: h.c, closer: h.f.listEnd}
		h.state = headedList
		return h.list.put(b)
	}
	if b != '{' {
		if h.header = append(h.header, b); len(h.header) > maxHeader {
			return bad
		}
		if h.f.lists && b == '\n' && strings.TrimSpace(string(h.header)) != "" {
			return bad // one line
		}
		return more
	}
	name, id, ok := h.f.header(string(h.header))
	if !ok || !validName(name) {
		return bad
	}
	h.c.begin(name, id)
	h.value.reset()
	h.state = headedArgs
	return h.put(b)
}

func (h *headed) end() {
	switch h.state {
	case headedArgs:
		h.c.args(h.value.cut()...)
	case headedList:
		h.list.end()
	}
}
