package parse

import "fmt"

// Options say how to read a text.
type Options struct {
	Tool      string // name of the tool call format; empty or None: calls are text
	Reasoning string // name of the reasoning format; empty or None: reasoning is text
	// Tools lists the tools given to the model. Formats that mark calls badly take only
	// calls of these; formats without types take them from their schemas.
	Tools []Tool
	// Prompt is the end of the text that the model continues: it may have begun
	// the reasoning, or ended it.
	Prompt string
	// OneCall ends the text with the first whole call.
	OneCall bool
	// NewID makes the id of a call that the model gave none; short asks for nine
	// letters and digits.
	NewID func(short bool) string
}

// Parser reads one text; see the package comment.
type Parser struct {
	out      *sink
	first    stage
	thinking func() bool
}

// New starts a text. It returns [ErrUnknown] for names that it does not know.
func New(o Options) (*Parser, error) {
	if err := CheckTool(o.Tool); err != nil && o.Tool != List {
		return nil, fmt.Errorf("tool calls: %w", err)
	}
	if err := CheckReasoning(o.Reasoning); err != nil {
		return nil, fmt.Errorf("reasoning: %w", err)
	}
	out := &sink{one: o.OneCall}
	p := &Parser{out: out, first: plain{out}, thinking: func() bool { return false }}
	short := false
	if f := callFormatOf(o.Tool); f != nil {
		short = f.shortIDs
		p.first = newCalls(out, f, newToolset(o.Tools))
	}
	out.newID = func() string {
		if o.NewID == nil {
			return ""
		}
		return o.NewID(short)
	}
	switch f := thinkFormats()[o.Reasoning]; {
	case o.Tool == harmonyFormat || o.Reasoning == gptOSS:
		h := newHarmony(out, p.first, o.Tool == harmonyFormat, o.Reasoning != "" && o.Reasoning != None)
		p.first, p.thinking = h, h.thinking
	case f != nil:
		t := newThink(out, p.first, f, o.Prompt)
		p.first, p.thinking = t, t.reasoning
	}
	return p, nil
}

// Feed reads the next piece of the text and returns what it shows.
func (p *Parser) Feed(text string) []Event {
	for i := 0; i < len(text) && !p.out.done; i++ {
		p.first.put(text[i])
	}
	return p.out.take()
}

// Finish ends the text and returns what was held back.
func (p *Parser) Finish() []Event {
	if !p.out.done {
		p.first.end()
	}
	return p.out.take()
}

// Done reports that a call was read after which nothing may follow.
func (p *Parser) Done() bool { return p.out.done }

// Thinking reports whether the text read so far ends inside reasoning.
func (p *Parser) Thinking() bool { return p.thinking() }

// Called reports whether there were calls, all of them whole.
func (p *Parser) Called() bool { return p.out.calls > 0 && !p.out.open && !p.out.broken }
