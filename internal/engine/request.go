package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Errors of Submit and Prefill.
var (
	// ErrTooLong is returned when a prompt leaves no room for one more token in
	// the context, or can never fit into the pool.
	ErrTooLong = errors.New("prompt is too long")
	// ErrQueueFull is returned when MaxWaiting requests wait already.
	ErrQueueFull = errors.New("engine queue is full")
	// ErrDraining is returned when admission has been stopped.
	ErrDraining = errors.New("engine is draining")
	// ErrClosed is returned when the engine has stopped.
	ErrClosed = errors.New("engine is closed")
	// ErrBadRequest is returned for an empty prompt or ids outside the vocabulary.
	ErrBadRequest = errors.New("bad request")
)

// Request asks for the continuation of a prompt.
type Request struct {
	ID string
	// Tenant names the party that the request belongs to. Admission is fair between
	// tenants.
	Tenant string
	Tokens []uint32 // the prompt, and what earlier attempts generated
	Media  Media    // of the prompt
	// Generated counts the last Tokens that are output of earlier attempts.
	Generated int
	Stop      protocol.StopConditions
	Sampling  protocol.SamplingOptions
	// Output selects what the outputs contain beside tokens. With PromptLogprobs the
	// prompt is always prefilled locally, and Decide is not asked.
	Output protocol.OutputOptions
	// Constraint, if not nil, restricts the output. Submit takes ownership, and the
	// constraint must be fresh: Submit makes it accept the Generated tokens.
	Constraint Constraint
	// Decide is asked at admission whether the prompt should be prefilled remotely. It
	// gets the prompt's length and how many of its tokens are cached here. The
	// scheduler's goroutine calls it, so it must not block. nil means always local.
	Decide func(promptTokens, cachedTokens int) Decision
	// Remote has the reservation filled by a remote worker. It is called in a goroutine
	// of its own after Decide chose remote prefill. It must end by calling exactly one of
	// the reservation's ending methods.
	Remote func(*Reservation)
}

// Decision is the result of Request.Decide.
type Decision struct {
	Remote bool
	Why    string // short reason, for people
}

// PrefillRequest asks for the KV of a prompt, without generating anything.
type PrefillRequest struct {
	ID     string
	Tenant string // as in Request
	Tokens []uint32
	Media  Media
	// Progress receives the number of leading tokens computed so far and the block table.
	// A later call may have another table, which differs only in blocks that were not full.
	// The first call comes at admission, when possibly nothing is computed yet. The
	// scheduler's goroutine calls Progress, so it must not block.
	Progress func(computed int, blocks []int32)
}

// check returns an error for requests that cannot be served.
func (e *Engine) check(r *Request) error {
	least := 1 // token to generate
	if r.Output.PromptLogprobs != nil {
		least = 0
	}
	if err := e.validate(r.Tokens, min(least, r.Stop.MaxTokens)); err != nil {
		return err
	}
	if err := r.Media.check(len(r.Tokens)-r.Generated, e.cfg.MaxBatchTokens, &e.info); err != nil {
		return err
	}
	if r.Output.PromptLogprobs != nil && len(r.Media.Parts) > 0 {
		return fmt.Errorf("%w: a prompt with images has no log probabilities", ErrBadRequest)
	}
	for _, n := range []*int{r.Output.Logprobs, r.Output.PromptLogprobs} {
		if n != nil && (*n < 0 || *n > protocol.MaxLogprobs) {
			return fmt.Errorf("%w: log probabilities of %d tokens requested, the maximum is %d", ErrBadRequest, *n, protocol.MaxLogprobs)
		}
	}
	switch {
	case r.Generated < 0 || r.Generated >= len(r.Tokens):
		return fmt.Errorf("%w: %d of %d tokens cannot be generated ones", ErrBadRequest, r.Generated, len(r.Tokens))
	case r.Stop.MaxTokens < least:
		return fmt.Errorf("%w: max_tokens is %d", ErrBadRequest, r.Stop.MaxTokens)
	}
	return checkSampling(&r.Sampling, e.info.VocabSize)
}

// newGeneration prepares the sampler's state for a checked request. limit is the number
// of ids that may be drawn.
func newGeneration(r *Request, limit int) *generation {
	o := &r.Sampling
	g := &generation{
		stop: r.Stop, sampling: r.Sampling, decide: r.Decide, remote: r.Remote,
		logprobs: r.Output.Logprobs, constraint: r.Constraint,
		adjusts: penalizes(o) || len(o.LogitBias)+len(o.AllowedTokenIDs)+len(o.BadWords) > 0,
	}
	if len(o.AllowedTokenIDs) > 0 {
		g.allowed = bitset(o.AllowedTokenIDs, limit)
	}
	if n := r.Output.PromptLogprobs; n != nil {
		g.scores = &promptScores{width: *n, known: 1, out: protocol.Logprobs{Width: min(*n, limit)}}
	}
	return g
}

func (e *Engine) validate(tokens []uint32, room int) error {
	if len(tokens) == 0 {
		return fmt.Errorf("%w: the prompt is empty", ErrBadRequest)
	}
	if n := len(tokens) + room; n > e.cfg.MaxModelLen {
		return fmt.Errorf("%w: %d prompt tokens, the limit is %d", ErrTooLong, len(tokens), e.cfg.MaxModelLen-room)
	}
	for i, t := range tokens {
		if int(t) >= e.info.VocabSize {
			return fmt.Errorf("%w: token %d at position %d is outside the vocabulary of %d", ErrBadRequest, t, i, e.info.VocabSize)
		}
	}
	return nil
}

// Output is one delivery of a stream: all tokens since the last one.
type Output struct {
	Tokens []uint32
	// Logprobs belong to Tokens; nil unless asked for. PromptLogprobs come with the first
	// output and cover the prompt after its first token; nil unless asked for.
	Logprobs, PromptLogprobs *protocol.Logprobs
	// Finish is set on the last output; Err with FinishError, Moved with FinishMoved.
	Finish protocol.FinishReason
	Err    error
	Moved  *protocol.Moved
	// First is set on the first output of a stream.
	First *FirstToken
	// Decoded is the time from the first token that this engine computed to the last one. It is
	// set on the last output, unless that is of a sequence that was ended early.
	Decoded time.Duration
}

// FirstToken tells how long the first token took, and why.
type FirstToken struct {
	Queued  time.Duration // waiting for admission
	Prefill time.Duration // admission to first token
	Cached  int           // prompt tokens found in the prefix cache
	Remote  bool          // prefilled elsewhere
	Why     string        // reason of Decide, or why remote prefill fell back to local
}
