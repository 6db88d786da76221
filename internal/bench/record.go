package bench

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/openai"
)

// Record is what was measured of one request. Times count from the beginning of the load.
type Record struct {
	Conversation, Turn int // from 0

	Due   time.Duration // when it should have been sent
	Sent  time.Duration // when it was
	First time.Duration // first token; 0 if there was none
	Last  time.Duration // last token
	End   time.Duration // end of the answer, or its failure

	WantInput, WantOutput int // tokens
	// Input and Output are the tokens that the server counted. Where it does not count, Input is
	// 0 and Output is the number of chunks, and Counted is false.
	Input, Output int
	Cached        int // of the input, from a prefix cache
	Counted       bool
	Chunks        int // pieces in which the answer came

	Finish string // why the answer ended
	Kind   string // of the failure; empty for success
	Error  string

	gaps []gap
}

// gap is the time between two chunks, of which the later one had so many tokens.
type gap struct {
	time   time.Duration
	tokens int
}

// Kinds of failures; a refusal with a status has the kind "http-STATUS".
const (
	KindRefused     = "refused"      // no server at the address
	KindUnreachable = "unreachable"  // no connection, for another reason
	KindCertificate = "certificate"  // no trust
	KindTimeout     = "timeout"      // no complete answer in time
	KindStream      = "stream-error" // the server reported an error within its answer
	KindCut         = "cut"          // the answer broke off
	KindWrong       = "wrong"        // no answer of an OpenAI-compatible server, or one without a token
	KindInterrupted = "interrupted"  // the user stopped the load; no failure
	KindOther       = "other"
)

// TTFT returns the time to the first token, from when the request was due.
func (r Record) TTFT() time.Duration { return r.First - r.Due }

// E2E returns the time to the end of the answer, from when the request was due.
func (r Record) E2E() time.Duration { return r.End - r.Due }

// Late returns by how much the client itself delayed the request.
func (r Record) Late() time.Duration { return r.Sent - r.Due }

// TPOT returns the time per output token after the first, by the number of tokens; false
// with less than two.
func (r Record) TPOT() (time.Duration, bool) {
	if r.Output < 2 {
		return 0, false
	}
	return (r.Last - r.First) / time.Duration(r.Output-1), true
}

// ITL returns the mean time between tokens, by the chunks in which they came; false with
// less than two chunks.
func (r Record) ITL() (time.Duration, bool) {
	n := 0
	for _, g := range r.gaps {
		n += g.tokens
	}
	if n == 0 {
		return 0, false
	}
	return (r.Last - r.First) / time.Duration(n), true
}

var (
	errTimeout = errors.New("no complete answer in time")
	errEmpty   = fmt.Errorf("%w: it has no token", openai.ErrProtocol)
)

// kindOf names the kind of a failure. stopped is the context of the whole load.
func kindOf(stopped context.Context, err error) string {
	var said *openai.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errTimeout):
		return KindTimeout
	case stopped.Err() != nil:
		return KindInterrupted
	case errors.As(err, &said) && said.Status > 0:
		return fmt.Sprintf("http-%d", said.Status)
	case said != nil:
		return KindStream
	case errors.Is(err, openai.ErrCertificate):
		return KindCertificate
	case errors.Is(err, syscall.ECONNREFUSED):
		return KindRefused
	case errors.Is(err, openai.ErrUnreachable):
		return KindUnreachable
	case errors.Is(err, openai.ErrProtocol):
		return KindWrong
	case errors.Is(err, openai.ErrBroken):
		return KindCut
	}
	return KindOther
}
