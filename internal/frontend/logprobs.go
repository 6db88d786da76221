package frontend

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/protocol"
)

// maxTextLogprobs is OpenAI's limit for text completions.
const maxTextLogprobs = 5

// checkLogprobs joins the fields logprobs and top_logprobs of a chat.
func (q *chatRequest) checkLogprobs() *apiError {
	n := 0
	if q.topLogprobs != nil {
		n = int(*q.topLogprobs)
	}
	switch {
	case q.wantLogprobs:
		q.logprobs = &n
	case n > 0:
		return wrongValue("top_logprobs", "it needs 'logprobs' to be true")
	}
	return nil
}

// tokenLogprob is a token of an answer and its log probability.
type tokenLogprob struct {
	id     uint32
	offset int // characters of the text before it
	value  float32
	first  bool // the first of a prompt, which has no value
	// top holds the most likely tokens at this position, the most likely first.
	top    []uint32
	values []float32
}

// logprobTrack matches the tokens of one choice with its text. A token is reported with
// the first text that comes from it or from a later token. Text can be held back and
// dropped in the end; its tokens are then dropped, too.
type logprobTrack struct {
	coming  []tokenLogprob // not yet decoded
	waiting []tokenLogprob
	begins  []int // of the waiting: bytes of text before them
	bytes   int   // text before them, in bytes
	chars   int   // in the text released, the echo of the prompt included
	// ready holds tokens, and echoed tokens of the prompt, for the next delta. kept holds
	// those of a whole answer.
	ready, echoed []tokenLogprob
	kept          []tokenLogprob

	prompt []uint32 // to report with the first output; nil if not wanted or done
	proc   *chat.Processor
}

// takeLogprobs stores the log probabilities of an output before its tokens are decoded.
// It fails if they do not match the tokens.
func (c *choice) takeLogprobs(o protocol.EngineOutput) error {
	if c.probs == nil {
		return nil
	}
	if err := c.probs.takePrompt(o.PromptLogprobs); err != nil {
		return err
	}
	if c.probs.prompt != nil && (len(o.TokenIDs) > 0 || o.Finish != protocol.FinishNone) {
		return errors.New("the prompt's log probabilities are missing")
	}
	lp := o.Logprobs
	if n := len(o.TokenIDs); n > 0 && (lp == nil || !lp.Valid(n)) {
		return fmt.Errorf("log probabilities do not fit %d tokens", n)
	}
	c.probs.coming = c.probs.coming[:0]
	for i, id := range o.TokenIDs {
		t := tokenLogprob{id: id, value: lp.Tokens[i]}
		t.top, t.values = lp.Top(i)
		c.probs.coming = append(c.probs.coming, t)
	}
	return nil
}

// decode turns tokens into text. It takes their log probabilities, which takeLogprobs
// stored, in order.
func (c *choice) decode(ids []uint32) (text string, stopped bool) {
	l := c.probs
	if l == nil {
		return c.detok.Push(ids)
	}
	for i := 0; i < len(ids) && !stopped; i++ {
		l.begins = append(l.begins, c.detok.Decoded())
		l.waiting, l.coming = append(l.waiting, l.coming[0]), l.coming[1:]
		var piece string
		piece, stopped = c.detok.Push(ids[i : i+1])
		text += piece
	}
	l.release(text, false)
	return text, stopped
}

// endText returns what was held back at the end of the text.
func (c *choice) endText() string {
	text := c.detok.Flush()
	if c.probs != nil {
		c.probs.release(text, !c.detok.Stopped())
	}
	return text
}

// takePrompt stores the log probabilities of the prompt, if they are wanted.
func (l *logprobTrack) takePrompt(lp *protocol.Logprobs) error {
	if l.prompt == nil || lp == nil {
		return nil
	}
	if !lp.Valid(len(l.prompt) - 1) {
		return fmt.Errorf("log probabilities do not fit a prompt of %d tokens", len(l.prompt))
	}
	detok, chars := l.proc.NewDetokenizer(chat.Stops{}, false, true), 0
	for i, id := range l.prompt {
		t := tokenLogprob{id: id, offset: chars, first: i == 0}
		if i > 0 {
			t.value = lp.Tokens[i-1]
			t.top, t.values = lp.Top(i - 1)
		}
		l.echoed = append(l.echoed, t)
		text, _ := detok.Push([]uint32{id})
		chars += utf8.RuneCountInString(text)
	}
	l.prompt = nil
	return nil
}

// release makes the tokens ready that a piece of text comes from. rest is for the last
// piece: it also makes the remaining tokens ready.
func (l *logprobTrack) release(text string, rest bool) {
	from := 0
	end := l.bytes + len(text)
	for len(l.waiting) > 0 && (l.begins[0] < end || rest) {
		t := l.waiting[0]
		to := max(min(l.begins[0]-l.bytes, len(text)), from)
		l.chars += utf8.RuneCountInString(text[from:to])
		from = to
		t.offset = l.chars
		l.ready = append(l.ready, t)
		l.waiting, l.begins = l.waiting[1:], l.begins[1:]
	}
	l.chars += utf8.RuneCountInString(text[from:])
	l.bytes = end
}

// fill moves ready tokens into a delta.
func (l *logprobTrack) fill(d *delta) {
	d.echoed, d.probs = l.echoed, l.ready
	l.echoed, l.ready = nil, nil
}

// keep collects tokens for a whole answer.
func (l *logprobTrack) keep(d delta) {
	l.kept = append(append(l.kept, d.echoed...), d.probs...)
}

// tokenNames encodes log probabilities in the form that one request asks for.
type tokenNames struct {
	proc  *chat.Processor // nil unless log probabilities are asked for
	asIDs bool            // return_tokens_as_token_ids
}

func (p *params) tokenNames(m *servedModel) tokenNames {
	if p.logprobs == nil {
		return tokenNames{}
	}
	return tokenNames{m.proc, p.tokensAsIDs}
}

// name returns the name of a token: its text, or, if its bytes are not characters, prefix
// and the escaped bytes, as OpenAI writes them.
func (n tokenNames) name(id uint32, prefix string) string {
	if n.asIDs {
		return "token_id:" + strconv.FormatUint(uint64(id), 10)
	}
	b := n.proc.TokenBytes(id)
	if utf8.Valid(b) {
		return string(b)
	}
	for _, c := range b {
		prefix += `\x` + string(hexDigits[c>>4]) + string(hexDigits[c&15])
	}
	return prefix
}

// appendChat appends the member logprobs of a chat's choice, null without tokens.
func (n tokenNames) appendChat(dst []byte, tokens []tokenLogprob) []byte {
	if n.proc == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i, t := range tokens {
		dst = n.appendEntry(comma(dst, i), t.id, t.value)
		dst = append(dst, `,"top_logprobs":[`...)
		for k, id := range t.top {
			dst = append(n.appendEntry(comma(dst, k), id, t.values[k]), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendEntry appends a token, its log probability and its bytes, without the
// closing brace.
func (n tokenNames) appendEntry(dst []byte, id uint32, value float32) []byte {
	dst = append(dst, `{"token":`...)
	dst = appendString(dst, n.name(id, ""))
	dst = append(dst, `,"logprob":`...)
	dst = appendLogprob(dst, value)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range n.proc.TokenBytes(id) {
		dst = strconv.AppendUint(comma(dst, i), uint64(b), 10)
	}
	return append(dst, ']')
}

// appendText appends the member logprobs of a text completion's choice, with the tokens
// of two lists.
func (n tokenNames) appendText(dst []byte, echoed, tokens []tokenLogprob) []byte {
	if n.proc == nil {
		return append(dst, "null"...)
	}
	column := func(name string, value func(tokenLogprob)) {
		dst = append(dst, name...)
		i := 0
		for _, list := range [2][]tokenLogprob{echoed, tokens} {
			for _, t := range list {
				dst = comma(dst, i)
				value(t)
				i++
			}
		}
		dst = append(dst, ']')
	}
	column(`{"tokens":[`, func(t tokenLogprob) { dst = appendString(dst, n.name(t.id, "bytes:")) })
	column(`,"token_logprobs":[`, func(t tokenLogprob) {
		if t.first {
			dst = append(dst, "null"...)
		} else {
			dst = appendLogprob(dst, t.value)
		}
	})
	column(`,"top_logprobs":[`, func(t tokenLogprob) { dst = n.appendTop(dst, t) })
	column(`,"text_offset":[`, func(t tokenLogprob) { dst = strconv.AppendInt(dst, int64(t.offset), 10) })
	return append(dst, '}')
}

// appendTop appends the most likely tokens as an object, and the token itself if it is
// not among them. Among tokens with the same name the most likely one counts.
func (n tokenNames) appendTop(dst []byte, t tokenLogprob) []byte {
	if t.first {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	seen := make(map[string]bool, len(t.top)+1)
	add := func(id uint32, value float32) {
		name := n.name(id, "bytes:")
		if seen[name] {
			return
		}
		dst = appendString(comma(dst, len(seen)), name)
		dst = appendLogprob(append(dst, ':'), value)
		seen[name] = true
	}
	for i, id := range t.top {
		add(id, t.values[i])
	}
	add(t.id, t.value)
	return append(dst, '}')
}

// comma separates the elements of a list.
func comma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// appendLogprob appends a number. JSON has only finite numbers, so others become -9999.
func appendLogprob(dst []byte, v float32) []byte {
	if v != v || math.IsInf(float64(v), 0) {
		v = -9999
	}
	return strconv.AppendFloat(dst, float64(v), 'g', -1, 32)
}
