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
	ID     string
	Tokens []uint32 // the prompt, and what earlier attempts generated
	// Generated is how many of the last Tokens are output of earlier attempts.
	Generated int
	Stop      protocol.StopConditions
	Sampling  protocol.SamplingOptions
	// Decide is asked at admission whether the prompt should be prefilled remotely,
	// given its length and how many of its tokens are cached here. It runs on the
	// scheduler's goroutine and must not block. nil means always local.
	Decide func(promptTokens, cachedTokens int) Decision
	// Remote fills the reservation from elsewhere. It is called in a goroutine of
	// its own when Decide chose so, and must end by calling exactly one of the
	// reservation's methods.
	Remote func(*Reservation)
}

// Decision is the outcome of Request.Decide.
type Decision struct {
	Remote bool
	Why    string // short reason, for people
}

// PrefillRequest asks for the KV of a prompt, without generating anything.
type PrefillRequest struct {
	ID     string
	Tokens []uint32
	// Progress hears, from the scheduler's goroutine, how many leading tokens are
	// computed and the block table; it must not block. The table does not change.
	Progress func(computed int, blocks []int32)
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

// Output is what a stream delivers at a time.
type Output struct {
	Tokens []uint32
	// Finish is set on the last output; Err with FinishError.
	Finish protocol.FinishReason
	Err    error
	// First is set on the first output of a stream.
	First *FirstToken
}

// FirstToken tells how the first token came about.
type FirstToken struct {
	Queued  time.Duration // waiting for admission
	Prefill time.Duration // admission to first token
	Cached  int           // prompt tokens found in the prefix cache
	Remote  bool          // prefilled elsewhere
	Why     string        // the decision's reason, or why remote prefill fell back
}
