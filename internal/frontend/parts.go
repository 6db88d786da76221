package frontend

import (
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// formats says how the text of one chat is parsed into parts.
type formats struct {
	tool, reasoning string // names of package parse; empty for neither
	prompt          string // the rendered prompt
}

// formats returns the formats of the model's card, or else those of its chat template. It
// looks for calls only if the model may call tools, and fails if the model cannot.
func (t *toolRequest) formats(m *servedModel) (f formats, _ *apiError) {
	f.tool, f.reasoning = m.proc.Formats()
	if set := m.card.Runtime.ToolCallParser; set != "" {
		f.tool = set
	}
	if set := m.card.Runtime.ReasoningParser; set != "" {
		f.reasoning = set
	}
	if f.reasoning == parse.None || parse.CheckReasoning(f.reasoning) != nil { // a newer worker may know more
		f.reasoning = ""
	}
	switch {
	case !t.active():
		f.tool = ""
	case !m.proc.TakesTools():
		return f, invalid("tools", "The chat template of the model '%s' does not show tools to it.", m.name).withCode("unsupported_parameter")
	case t.forced():
		if parse.Framed(f.tool, f.reasoning) {
			return f, wrongValue("tool_choice", "the texts of the model '%s' are framed by special tokens: a call cannot be forced", m.name)
		}
		f.tool = parse.List
	case f.tool == "" || f.tool == parse.None || parse.CheckTool(f.tool) != nil:
		return f, invalid("tools", "This server does not know how the model '%s' writes tool calls: serve it with a tool parser, or set 'tool_choice' to \"none\".", m.name).withCode("unsupported_parameter")
	}
	return f, nil
}

// apply gives the choices parsers for their text.
func (f *formats) apply(m *servedModel, t *toolRequest, choices []*choice) {
	if f.tool == "" && f.reasoning == "" {
		return
	}
	keep := m.proc.SpecialTokens(parse.Marks(f.tool, f.reasoning))
	for _, c := range choices {
		p, err := parse.New(parse.Options{
			Tool: f.tool, Reasoning: f.reasoning, Tools: t.list, Prompt: f.prompt,
			OneCall: t.parallel != nil && !*t.parallel, NewID: newCallID,
		})
		if err != nil { // the names were checked
			return
		}
		c.parser, c.reasons, c.forced = p, f.reasoning != "", f.tool == parse.List
		c.detok.Keep(keep)
	}
}

// newCallID makes the id of a tool call.
func newCallID(short bool) string {
	if short {
		return rand.Text()[:9]
	}
	return newID("call-")
}

// parts holds the parts into which the text of one chat choice is parsed.
type parts struct {
	parser    *parse.Parser // nil if the text is the answer
	reasons   bool          // the parser knows reasoning
	forced    bool          // the text is nothing but calls
	reasoned  int           // tokens of reasoning, with its marks
	reasoning strings.Builder
	calls     []toolCall
	arguments []*strings.Builder // of the calls
}

// toolCall is a call in OpenAI's format.
type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text
}

// read decodes tokens into a delta. stopped reports that the text ends with them.
func (c *choice) read(d *delta, ids []uint32) (stopped bool) {
	if c.parser == nil {
		d.text, stopped = c.decode(ids)
		return stopped
	}
	for i := range ids {
		thought := c.parser.Thinking()
		var text string
		text, stopped = c.decode(ids[i : i+1])
		d.events = append(d.events, c.parser.Feed(text)...)
		if thought || c.parser.Thinking() {
			c.reasoned++
		}
		if stopped || c.parser.Done() {
			return true
		}
	}
	return false
}

// flush adds the text held back at the end of the tokens.
func (c *choice) flush(d *delta) {
	text := c.endText()
	if c.parser == nil {
		d.text += text
		return
	}
	d.events = append(d.events, c.parser.Feed(text)...)
}

// close ends the text with the last delta. Its finish reason is a call if the model made
// one and stopped by itself.
func (c *choice) close(d *delta) {
	if c.parser == nil || d.finish == "" {
		return
	}
	d.events = append(d.events, c.parser.Finish()...)
	if d.finish == finishStop && c.parser.Called() {
		d.finish = finishToolCalls
	}
}

// Finish reasons of a choice, in OpenAI's words.
const (
	finishStop      = "stop"
	finishToolCalls = "tool_calls"
)

// collect keeps a delta for a whole answer.
func (c *choice) collect(d delta) {
	if d.raw != nil {
		c.whole = d.raw
		return
	}
	c.text.WriteString(d.text)
	if c.probs != nil {
		c.probs.keep(d)
	}
	for _, e := range d.events {
		switch e.Kind {
		case parse.Content:
			c.text.WriteString(e.Text)
		case parse.Reasoning:
			c.reasoning.WriteString(e.Text)
		case parse.CallBegin:
			c.calls = append(c.calls, toolCall{ID: e.ID, Type: "function", Function: toolFunction{Name: e.Name}})
			c.arguments = append(c.arguments, &strings.Builder{})
		case parse.CallArguments:
			c.arguments[e.Call].WriteString(e.Text)
		case parse.CallEnd:
		}
	}
}

// chatMessage is a whole answer in OpenAI's format.
type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// message returns the collected answer. Content is null if there are only calls, or if there
// should be: a forced call may be cut off before its name.
func (c *choice) message() chatMessage {
	for i := range c.calls {
		c.calls[i].Function.Arguments = c.arguments[i].String()
	}
	m := chatMessage{Role: "assistant", Reasoning: c.reasoning.String(), ToolCalls: c.calls}
	if text := c.text.String(); text != "" || len(c.calls) == 0 && !c.forced {
		m.Content = &text
	}
	return m
}

// reasoningOf counts the tokens of reasoning. It returns nil if no parser knows
// reasoning.
func reasoningOf(choices []*choice) *completionDetails {
	var d *completionDetails
	for _, c := range choices {
		if c.reasons {
			if d == nil {
				d = &completionDetails{}
			}
			d.ReasoningTokens += c.reasoned
		}
	}
	return d
}

// appendEvent appends the event of one part of a choice.
func (a *chatAnswer) appendEvent(dst []byte, index int, e parse.Event) []byte {
	if e.Kind == parse.CallEnd {
		return dst // the next call or the finish reason says so
	}
	dst = a.chunks.open(dst, index)
	switch e.Kind {
	case parse.Content:
		dst = append(dst, `,"delta":{"content":`...)
		dst = appendString(dst, e.Text)
	case parse.Reasoning:
		dst = append(dst, `,"delta":{"reasoning_content":`...)
		dst = appendString(dst, e.Text)
	case parse.CallBegin:
		dst = appendCall(dst, e.Call)
		dst = append(dst, `,"id":`...)
		dst = appendString(dst, e.ID)
		dst = append(dst, `,"type":"function","function":{"name":`...)
		dst = appendString(dst, e.Name)
		dst = append(dst, `,"arguments":""}}]`...)
	case parse.CallArguments:
		dst = appendCall(dst, e.Call)
		dst = append(dst, `,"function":{"arguments":`...)
		dst = appendString(dst, e.Text)
		dst = append(dst, `}}]`...)
	case parse.CallEnd:
	}
	dst = append(dst, '}')
	return a.chunks.close(dst, "")
}

// appendCall opens the delta of a call.
func appendCall(dst []byte, call int) []byte {
	dst = append(dst, `,"delta":{"tool_calls":[{"index":`...)
	return strconv.AppendInt(dst, int64(call), 10)
}
