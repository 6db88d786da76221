package parse

// calls is the stage that finds tool calls in a text.
type calls struct {
	out    *sink
	tools  toolset
	format *callFormat

	marks marks  // that open a block
	lead  bool   // nothing but white space since the beginning or the last block
	blank []byte // that white space
	block block  // nil in ordinary text
	// raw is the part of the block that has not become an event yet, with the white
	// space before it; its first opened bytes are what opened it.
	raw    []byte
	opened int
	told   bool // a call of the block was announced

	queue []byte // still to be read
	free  []byte // scratch
}

// block reads what follows an opening mark.
type block interface {
	// put reads a byte. What it means goes to begin, args and finish of calls.
	put(b byte) verdict
	// end is told that the text is over. It hands on what belongs to the arguments of an
	// open call.
	end()
}

const (
	// maxRaw limits the text held back in a block, in bytes; beyond it the block is plain text.
	maxRaw = 1 << 20
	// maxAgain limits the part of a broken block that is searched for further calls, in bytes.
	maxAgain = 4 << 10
	// maxName limits names of functions and parameters, in bytes.
	maxName = 256
)

func newCalls(out *sink, f *callFormat, tools toolset) *calls {
	return &calls{out: out, tools: tools, format: f, marks: marks{list: f.open}, lead: true}
}

func (c *calls) put(b byte) {
	c.step(b)
	for len(c.queue) > 0 && !c.out.done {
		b, c.queue = c.queue[0], c.queue[1:]
		c.step(b)
	}
}

func (c *calls) step(b byte) {
	if c.block != nil {
		c.inside(b)
	} else {
		c.outside(b)
	}
}

// outside reads a byte of ordinary text.
func (c *calls) outside(b byte) {
	if c.lead && len(c.marks.held) == 0 {
		if space(b) {
			c.blank = append(c.blank, b)
			return
		}
		if b == c.format.bare && b != 0 {
			c.open("", -1)
			c.opened = len(c.raw) + 1
			c.inside(b)
			return
		}
	}
	free, hit := c.marks.put(c.free[:0], b)
	c.free = free
	c.text(free)
	if hit >= 0 {
		c.open(c.marks.list[hit], hit)
	}
}

// open begins a block after mark number hit, or a bare one.
func (c *calls) open(mark string, hit int) {
	c.raw = append(append(c.raw[:0], c.blank...), mark...)
	c.blank = c.blank[:0]
	c.opened = len(c.raw)
	c.told = false
	c.block = c.format.block(c, hit)
}

// text hands ordinary text on, with the white space before it.
func (c *calls) text(text []byte) {
	if len(text) == 0 {
		return
	}
	c.out.add(Content, c.blank...)
	c.out.add(Content, text...)
	c.blank, c.lead = c.blank[:0], false
}

// inside reads a byte of a block.
func (c *calls) inside(b byte) {
	c.raw = append(c.raw, b)
	switch c.block.put(b) {
	case more:
		if len(c.raw) > maxRaw {
			c.leave(false)
			c.text(c.raw)
		}
	case done:
		c.leave(true)
	case before:
		rest := append([]byte(nil), c.raw...)
		c.leave(true)
		c.again(rest)
	case bad:
		if len(c.raw) == 0 { // the byte ended a number that was handed on
			c.raw = append(c.raw, b)
		}
		if !c.told {
			first := min(c.opened, len(c.raw))
			rest := append([]byte(nil), c.raw[first:]...)
			c.leave(false)
			c.text(c.raw[:first])
			c.again(rest)
			return
		}
		rest := append([]byte(nil), c.raw...)
		c.leave(!c.out.open)
		c.again(rest)
	}
}

// leave goes back to ordinary text.
func (c *calls) leave(whole bool) {
	if c.out.open {
		c.out.finish(false)
	}
	c.block, c.lead = nil, whole
}

// again reads text once more that belonged to no call.
func (c *calls) again(rest []byte) {
	if len(rest) > maxAgain {
		c.text(rest)
		return
	}
	c.queue = append(rest, c.queue...)
}

// begin announces a call.
func (c *calls) begin(name, id string) {
	c.out.begin(name, id)
	c.told = true
	c.raw = c.raw[:0]
}

// args hands on a piece of arguments that stands for all that was read so far.
func (c *calls) args(text ...byte) {
	if len(text) > 0 {
		c.out.add(CallArguments, text...)
		c.raw = c.raw[:0]
	}
}

// finish ends a call whose arguments are complete.
func (c *calls) finish() {
	c.out.finish(true)
	c.raw = c.raw[:0]
}

// structure says that what was read so far is structure around whole calls.
func (c *calls) structure() { c.raw = c.raw[:0] }

// end implements stage. What is still held back is text if there was no call. After the
// beginning of one, and where the text must be calls, it is the beginning of another one
// that was cut off, or structure.
func (c *calls) end() {
	if c.out.done {
		return
	}
	if c.block != nil {
		c.block.end()
		text := c.out.calls == 0 && !c.format.forced
		c.leave(c.told)
		if text {
			c.text(c.raw)
		}
	}
	held := c.marks.release(nil)
	if c.out.calls == 0 && !c.format.forced {
		c.text(held)
		c.out.add(Content, c.blank...)
	}
}

// validName says whether a call can have that name: a word, with the separators
// that tools of several servers use.
func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for i := range len(name) {
		if b := name[i]; !wordByte(b) && b != '-' && b != '.' && b != '/' && b != ':' && b < 0x80 {
			return false
		}
	}
	return true
}
