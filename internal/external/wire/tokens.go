package wire

import (
	"errors"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrEnough is returned by [Tokens.Add] after the end of an answer, for the caller to stop
// reading.
var ErrEnough = errors.New("the answer is complete")

// Piece is a part of an answer to tokens.
type Piece struct {
	// IDs are its tokens, end tokens included; nil if the server tells none. Text is set then.
	IDs      []uint32
	Text     string
	Logprobs *protocol.Logprobs // of IDs
	Cached   *int               // prompt tokens found in the cache, where that is known early
	Reason   string             // why the answer ends with this piece; empty if it does not
}

// Tokens assembles an answer to tokens from pieces as a server sends them, and emits what a
// worker of ours would: without hidden end tokens, within the limits of the request, with
// usage at the end.
type Tokens struct {
	r      *protocol.PreprocessedRequest
	emit   func(protocol.EngineOutput) error
	begun  bool
	text   bool // the answer is text, whose tokens only the server counts
	n      int  // tokens emitted
	cached int  // -1: unknown
	usage  *Usage
	finish protocol.FinishReason
}

// NewTokens begins the answer to r.
func NewTokens(r *protocol.PreprocessedRequest, emit func(protocol.EngineOutput) error) *Tokens {
	return &Tokens{r: r, emit: emit, cached: -1}
}

// Add emits a piece. It returns [ErrEnough] where the answer ended before the server knew, and
// what emit returns.
func (t *Tokens) Add(p Piece) error {
	if t.finish != "" && (len(p.IDs) > 0 || p.Text != "") {
		return ErrEnough
	}
	if p.Cached != nil {
		t.cached = *p.Cached
	}
	if p.Reason != "" && t.finish == "" {
		finish, err := Finish(p.Reason)
		if err != nil {
			return err
		}
		t.finish = finish
	}
	ids, cut := t.cut(p.IDs)
	out := protocol.EngineOutput{TokenIDs: ids, Text: p.Text}
	if t.r.Output.Logprobs != nil && len(p.IDs) > 0 {
		if p.Logprobs == nil || !p.Logprobs.Valid(len(p.IDs)) || p.Logprobs.Width != *t.r.Output.Logprobs {
			return Unavailable("the server did not tell the log probabilities that it was asked for")
		}
		l := *p.Logprobs
		out.Logprobs = &protocol.Logprobs{Tokens: l.Tokens[:len(ids)], Width: l.Width, TopIDs: l.TopIDs[:len(ids)*l.Width], TopValues: l.TopValues[:len(ids)*l.Width]}
	}
	t.n += len(ids)
	if len(ids) == 0 && p.Text == "" {
		return cut
	}
	if !t.begun && t.cached >= 0 {
		out.Timing = &protocol.Timing{CachedTokens: t.cached}
	}
	t.begun, t.text = true, t.text || p.Text != ""
	if err := t.emit(out); err != nil {
		return err
	}
	return cut
}

// cut ends the tokens at the first one that ends the answer, or at the limit. Servers do the
// same; one that does not is told to stop.
func (t *Tokens) cut(ids []uint32) ([]uint32, error) {
	stop := t.r.Stop
	for i, id := range ids {
		n, end := i, false
		switch {
		case t.n+i >= stop.MaxTokens:
			t.finish, end = protocol.FinishLength, true
		case t.n+i < stop.MinTokens:
		case slices.Contains(stop.StopTokenIDs, id):
			t.finish, end = protocol.FinishStop, true
		case slices.Contains(stop.StopTokenIDsVisible, id):
			t.finish, end, n = protocol.FinishStop, true, i+1
		}
		switch {
		case end && i < len(ids)-1:
			return ids[:n], ErrEnough
		case end:
			return ids[:n], nil
		}
	}
	return ids, nil
}

// Ended reports whether a piece or a limit has ended the answer.
func (t *Tokens) Ended() bool { return t.finish != "" }

// Emitted returns how many tokens were emitted.
func (t *Tokens) Emitted() int { return t.n }

// SetUsage says what the server counted.
func (t *Tokens) SetUsage(u Usage) { t.usage = &u }

// SetCached says how much of the prompt was in the cache.
func (t *Tokens) SetCached(n int) { t.cached = n }

// Close emits the end of the answer. It fails if the server never said why it ended.
func (t *Tokens) Close() error {
	if t.finish == "" {
		return Unavailable("the stream ended before the answer")
	}
	usage := protocol.Usage{PromptTokens: len(t.r.TokenIDs) - t.r.Generated, CompletionTokens: t.n}
	if t.text && t.usage != nil {
		usage.CompletionTokens = max(t.usage.Completion, 0)
	}
	cached := t.cached
	if cached < 0 {
		cached = t.usage.Cached()
	}
	usage.CachedTokens = min(max(cached, 0), len(t.r.TokenIDs))
	return t.emit(protocol.EngineOutput{Finish: t.finish, Usage: &usage})
}
