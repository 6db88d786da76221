package parse

// thinkFormat holds the marks around a model's reasoning.
type thinkFormat struct {
	open, close []string // marks, several where models vary
	forced      bool     // text begins with reasoning even without a mark
}

// think is the stage that takes reasoning out of the beginning of a text. Marks
// further on are ordinary text: an answer may well speak of them.
type think struct {
	out    *sink
	next   stage
	format *thinkFormat
	forced bool
	state  thinkState
	blank  []byte // white space that may have to go with a mark
	held   []byte // what may be an opening mark
	close  marks
	free   []byte
	told   bool // some reasoning was handed on
}

type thinkState uint8

const (
	thinkStart  thinkState = iota // before an opening mark
	thinkInside                   // in reasoning
	thinkClosed                   // white space after it
	thinkOutside
)

// newThink begins in reasoning, outside of it, or by the first text: as the prompt
// ends with an opening mark, a closing one, or none.
func newThink(out *sink, next stage, f *thinkFormat, prompt string) *think {
	t := &think{out: out, next: next, format: f, forced: f.forced, close: marks{list: f.close}}
	for len(prompt) > 0 && space(prompt[len(prompt)-1]) {
		prompt = prompt[:len(prompt)-1]
	}
	if endsWith(prompt, f.open) {
		t.forced = true
	} else if endsWith(prompt, f.close) {
		t.state = thinkClosed
	}
	return t
}

func endsWith(text string, marks []string) bool {
	for _, m := range marks {
		if len(text) >= len(m) && text[len(text)-len(m):] == m {
			return true
		}
	}
	return false
}

// reasoning reports whether text goes on with reasoning.
func (t *think) reasoning() bool {
	return t.state == thinkInside || t.state == thinkStart && (t.forced || len(t.held) > 0)
}

func (t *think) put(b byte) {
	switch t.state {
	case thinkStart:
		t.start(b)
	case thinkInside:
		t.inside(b)
	case thinkClosed:
		t.closed(b)
	default:
		t.next.put(b)
	}
}

// start reads up to the opening mark, or to what shows that there is none.
func (t *think) start(b byte) {
	if len(t.held) == 0 && space(b) {
		t.blank = append(t.blank, b)
		return
	}
	t.held = append(t.held, b)
	for _, mark := range t.format.open {
		if len(mark) < len(t.held) || mark[:len(t.held)] != string(t.held) {
			continue
		}
		if len(mark) == len(t.held) {
			t.state, t.held, t.blank = thinkInside, nil, t.blank[:0]
		}
		return
	}
	t.unmarked()
}

// unmarked goes on where there is no opening mark.
func (t *think) unmarked() {
	held := t.held
	t.held = nil
	if t.forced {
		t.state, t.blank = thinkInside, t.blank[:0]
		for _, b := range held {
			t.inside(b)
		}
		return
	}
	t.state = thinkOutside
	for _, b := range t.blank {
		t.next.put(b)
	}
	for _, b := range held {
		t.next.put(b)
	}
	t.blank = nil
}

// inside reads reasoning. White space at its beginning, and from the last line
// break on at its end, belongs to the marks.
func (t *think) inside(b byte) {
	free, hit := t.close.put(t.free[:0], b)
	t.free = free
	for _, b := range free {
		if space(b) && (!t.told || b == '\n' || len(t.blank) > 0) {
			if t.told {
				t.blank = append(t.blank, b)
			}
			continue
		}
		t.out.add(Reasoning, t.blank...)
		t.out.add(Reasoning, b)
		t.blank, t.told = t.blank[:0], true
	}
	if hit >= 0 {
		t.state, t.blank = thinkClosed, t.blank[:0]
	}
}

// closed leaves out the line breaks after a closing mark.
func (t *think) closed(b byte) {
	switch {
	case b == '\n':
		t.blank = t.blank[:0]
		return
	case space(b):
		t.blank = append(t.blank, b)
		return
	}
	t.state = thinkOutside
	for _, b := range append(t.blank, b) {
		t.next.put(b)
	}
}

func (t *think) end() {
	switch t.state {
	case thinkStart:
		t.unmarked()
		if t.state == thinkInside {
			t.end()
			return
		}
	case thinkInside:
		if rest := t.close.release(nil); len(rest) > 0 {
			t.out.add(Reasoning, t.blank...)
			t.out.add(Reasoning, rest...)
		}
	}
	t.next.end()
}

func thinkTags(forced bool) *thinkFormat {
	return &thinkFormat{open: []string{"<think>"}, close: []string{"</think>"}, forced: forced}
}

func granite() *thinkFormat {
	return &thinkFormat{
		open:  []string{"Here is my thought process:", "Here's my thought process:"},
		close: []string{"Here is my response:", "Here's my response:"},
	}
}
