package engine

import (
	"context"
	"io"
	"sync"
)

// Stream delivers the output of one sequence. The scheduler never waits for the reader:
// it merges unread output, which max_tokens bounds.
type Stream struct {
	id     string
	cancel func()

	mu     sync.Mutex
	out    Output
	filled bool
	done   bool
	wake   chan struct{} // capacity 1
}

func newStream(id string, cancel func()) *Stream {
	return &Stream{id: id, cancel: cancel, wake: make(chan struct{}, 1)}
}

// Next waits for output. After the output with a finish reason it returns io.EOF. If ctx
// ends first, Next returns its cause; the sequence continues until Cancel.
func (s *Stream) Next(ctx context.Context) (Output, error) {
	for {
		if out, ok, done := s.take(); ok {
			return out, nil
		} else if done {
			return Output{}, io.EOF
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Output{}, context.Cause(ctx)
		}
	}
}

// Take returns what Next would return without waiting; ok is false if there is nothing.
func (s *Stream) Take() (out Output, ok bool) {
	out, ok, _ = s.take()
	return out, ok
}

func (s *Stream) take() (out Output, ok, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.filled {
		return Output{}, false, s.done
	}
	out = s.out
	s.out, s.filled = Output{}, false
	return out, true, s.done
}

// Cancel ends the sequence and frees its blocks; it does nothing to a finished one.
func (s *Stream) Cancel() { s.cancel() }

// push adds output and returns true, or returns false if the stream has ended. The
// scheduler calls it, and so does Export.Complete.
func (s *Stream) push(o Output) bool {
	s.mu.Lock()
	if s.done { // moved and cancelled at the same time
		s.mu.Unlock()
		return false
	}
	if s.out.Tokens == nil {
		s.out.Tokens = o.Tokens // nobody else keeps them
	} else {
		s.out.Tokens = append(s.out.Tokens, o.Tokens...)
	}
	switch {
	case o.Logprobs == nil:
	case s.out.Logprobs == nil:
		s.out.Logprobs = o.Logprobs
	default:
		s.out.Logprobs.Append(o.Logprobs)
	}
	if o.PromptLogprobs != nil {
		s.out.PromptLogprobs = o.PromptLogprobs
	}
	if o.First != nil {
		s.out.First = o.First
	}
	if o.Finish != "" {
		s.out.Finish, s.out.Err, s.out.Moved, s.out.Decoded, s.done = o.Finish, o.Err, o.Moved, o.Decoded, true
	}
	s.filled = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}
