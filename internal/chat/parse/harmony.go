package parse

import "strings"

// Marks of the harmony format, in which a text is a sequence of messages: a header
// with role, channel and recipient, then a body.
const (
	harmonyStart   = "<|start|>"
	harmonyChannel = "<|channel|>"
	harmonyMessage = "<|message|>"
	harmonyEnd     = "<|end|>"
	harmonyCall    = "<|call|>"
	harmonyReturn  = "<|return|>"
)

// harmony is the stage that reads such messages. Its analysis is reasoning, what is
// addressed to a function is a call, the rest is content.
type harmony struct {
	out       *sink
	next      stage
	calls     bool // else calls are text
	reasoning bool // else reasoning is content

	state  harmonyState
	marks  marks
	header []byte // with the mark that opened it
	marked bool   // something opened it: it is no ordinary text
	kind   harmonyKind
	value  value
	held   []byte  // of the arguments: read but not handed on
	free   []byte  // scratch
	text   []byte  // scratch
	some   [2]bool // content, reasoning: an earlier message had some
	line   bool    // the message begins: a line break goes between
}

type harmonyState uint8

const (
	harmonyInHeader harmonyState = iota
	harmonyInBody
	harmonyBetween // messages; text there is content
)

type harmonyKind uint8

const (
	harmonyContent harmonyKind = iota
	harmonyReasoning
	harmonyVerbatim // content with the mark at its end
	harmonyName     // a call before its arguments
	harmonyArgs     // in them
	harmonyRest     // after them
)

func newHarmony(out *sink, next stage, calls, reasoning bool) *harmony {
	return &harmony{out: out, next: next, calls: calls, reasoning: reasoning, marks: marks{list: []string{
		harmonyStart, harmonyChannel, harmonyEnd, harmonyCall, harmonyReturn,
	}}}
}

// thinking reports whether text goes on with reasoning.
func (h *harmony) thinking() bool { return h.state == harmonyInBody && h.kind == harmonyReasoning }

func (h *harmony) put(b byte) {
	if h.state == harmonyInHeader {
		h.inHeader(b)
		return
	}
	free, hit := h.marks.put(h.free[:0], b)
	h.free = free
	for _, b := range free {
		h.body(b)
	}
	if hit >= 0 {
		h.mark(h.marks.list[hit])
	}
}

// inHeader reads a header up to its end, or to what shows that it is none.
func (h *harmony) inHeader(b byte) {
	h.header = append(h.header, b)
	text := string(h.header)
	if b == '>' {
		if strings.HasSuffix(text, harmonyMessage) {
			h.message(text)
			return
		}
		for _, m := range []string{harmonyEnd, harmonyCall, harmonyReturn} {
			if strings.HasSuffix(text, m) {
				h.verbatim()
				return
			}
		}
	}
	if len(text) > maxHeader || !h.marked && !headerBegins(text) {
		h.verbatim()
	}
}

// headerBegins says whether the first text can be the rest of a header that the
// prompt began.
func headerBegins(text string) bool {
	text = strings.TrimLeft(text, " ")
	for _, p := range []string{harmonyStart, harmonyChannel, harmonyMessage, "to="} {
		if strings.HasPrefix(text, p) || strings.HasPrefix(p, text) {
			return true
		}
	}
	return false
}

// verbatim takes what was read as a header for text.
func (h *harmony) verbatim() {
	h.state = harmonyBetween
	h.say(h.header...)
	h.header = h.header[:0]
}

// message begins the body that a header announces.
func (h *harmony) message(header string) {
	_, channel, _ := strings.Cut(header, harmonyChannel)
	channel = strings.TrimLeft(channel, " ")
	h.state, h.line = harmonyInBody, true
	h.kind = harmonyContent
	if h.recipient() != "" {
		h.kind = harmonyVerbatim
		if h.calls {
			h.kind = harmonyName
			return
		}
		h.say(h.header...)
	} else if strings.HasPrefix(channel, "analysis") && h.reasoning {
		h.kind = harmonyReasoning
	}
	h.header = h.header[:0]
}

// recipient is the function that the header addresses, or empty.
func (h *harmony) recipient() string {
	_, to, _ := strings.Cut(string(h.header), "to=functions.")
	if i := strings.IndexAny(to, " <\n\t"); i >= 0 {
		to = to[:i]
	}
	if !validName(to) {
		return ""
	}
	return to
}

// body reads a byte of a message's body.
func (h *harmony) body(b byte) {
	if h.out.done {
		return
	}
	switch h.kind {
	case harmonyName:
		switch {
		case space(b):
			h.held = append(h.held, b)
		case b == '{':
			h.out.begin(h.recipient(), "")
			h.header, h.held = h.header[:0], h.held[:0]
			h.value.reset()
			h.kind = harmonyArgs
			h.args(b)
		default:
			h.noCall()
			h.say(b)
		}
	case harmonyArgs:
		h.args(b)
	case harmonyRest:
		if !space(b) {
			h.kind = harmonyContent
			h.say(b)
		}
	case harmonyReasoning:
		if h.line && h.some[1] {
			h.out.add(Reasoning, '\n')
		}
		h.line, h.some[1] = false, true
		h.out.add(Reasoning, b)
	default:
		h.say(b)
	}
}

func (h *harmony) args(b byte) {
	var v verdict
	h.held = append(h.held, b)
	h.text, v = h.value.put(h.text[:0], b)
	if len(h.text) > 0 {
		h.out.add(CallArguments, h.text...)
		h.held = h.held[:0]
	}
	switch v {
	case done:
		h.out.finish(true)
		h.kind = harmonyRest
	case bad, before:
		if len(h.held) == 0 { // the byte ended a number that was handed on
			h.held = append(h.held, b)
		}
		h.broken()
	}
}

// broken ends the open call; what was not handed on of it is text.
func (h *harmony) broken() {
	h.out.finish(false)
	h.kind = harmonyContent
	h.say(h.held...)
	h.held = h.held[:0]
}

// noCall takes an announced call without arguments for text.
func (h *harmony) noCall() {
	h.kind = harmonyVerbatim
	h.say(h.header...)
	h.say(h.held...)
	h.header, h.held = h.header[:0], h.held[:0]
}

// say hands content on.
func (h *harmony) say(text ...byte) {
	if len(text) == 0 {
		return
	}
	if h.line && h.some[0] {
		h.next.put('\n')
	}
	h.line, h.some[0] = false, true
	for _, b := range text {
		h.next.put(b)
	}
}

// mark reads a mark outside of headers.
func (h *harmony) mark(mark string) {
	switch {
	case h.state == harmonyInBody && h.kind == harmonyName:
		if mark != harmonyCall {
			h.noCall()
			break
		}
		h.out.begin(h.recipient(), "") // a call without arguments
		h.out.add(CallArguments, '{', '}')
		h.out.finish(true)
		h.held = h.held[:0]
	case h.state == harmonyInBody && h.kind == harmonyArgs:
		h.broken()
	}
	opens := mark == harmonyStart || mark == harmonyChannel
	if h.state == harmonyInBody && h.kind == harmonyVerbatim && !opens {
		h.say([]byte(mark)...)
	}
	h.state, h.kind, h.line = harmonyBetween, harmonyContent, true
	if opens {
		h.state, h.marked = harmonyInHeader, true
		h.header = append(h.header[:0], mark...)
	}
}

func (h *harmony) end() {
	if !h.out.done {
		switch {
		case h.state == harmonyInHeader:
			if !h.marked { // else it is structure
				h.verbatim()
			}
		case h.state == harmonyInBody && h.kind == harmonyName:
			if h.out.calls == 0 { // else another call is cut off
				h.noCall()
			}
		case h.state == harmonyInBody && h.kind == harmonyArgs:
			h.out.add(CallArguments, h.value.cut()...)
			h.held = h.held[:0]
			h.broken()
		}
		if held := h.marks.release(nil); h.out.calls == 0 { // else it is the beginning of a mark that ends a call
			for _, b := range held {
				h.body(b)
			}
		}
	}
	h.next.end()
}
