package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Import is a sequence that another engine ran until now. A transfer writes its KV into
// the blocks reserved here. After Commit the sequence is parked, and Attach makes it run.
// The holder must call exactly one of Attach, Release or Quarantine.
//
// An Import is not safe for concurrent use.
type Import struct {
	RequestID string
	// Blocks is the reserved block table. The first CachedBlocks hold valid KV already
	// and are shared, the rest are incoming.
	Blocks       []int32
	CachedBlocks int

	e         *Engine
	s         *sequence
	ctx       context.Context
	cancel    context.CancelCauseFunc
	tokens    []uint32 // after Commit
	committed bool
	landed    bool // owned by the scheduler
}

// Import reserves a place in the batch and blocks for a sequence of another engine. r is
// the request that would compute the sequence again. room is the most tokens that the
// sequence may have when it arrives. Import does not wait: without room it fails with
// ErrQueueFull or ErrNoBlocks. It also fails as Submit does.
func (e *Engine) Import(ctx context.Context, r Request, room int) (*Import, error) {
	s, err := e.newSequence(&r)
	if err != nil {
		return nil, err
	}
	if s.gen.scores != nil {
		return nil, fmt.Errorf("%w: log probabilities of the prompt cannot follow it", ErrBadRequest)
	}
	room = min(max(room, len(s.tokens)), e.cfg.MaxModelLen)
	i := &Import{RequestID: r.ID, e: e, s: s}
	i.ctx, i.cancel = context.WithCancelCause(context.Background())
	begun := false
	refused, unasked := ask(ctx, e, func() error {
		err := e.reserve(i, room)
		begun = err == nil
		return err
	})
	if unasked != nil {
		i.post(func() { // it may begin after ctx ended
			if begun {
				i.release(unasked)
			}
		})
	}
	if err := cmp.Or(unasked, refused); err != nil {
		return nil, err
	}
	return i, nil
}

// reserve takes the slot and the blocks of an import, or returns an error.
func (e *Engine) reserve(i *Import, room int) error {
	s := i.s
	switch {
	case e.closing:
		return ErrClosed
	case e.draining:
		return ErrDraining
	case e.seqs[s.id] != nil:
		return fmt.Errorf("%w: request id %q is in use", ErrBadRequest, s.id)
	case e.slots() >= e.cfg.MaxSeqs:
		return fmt.Errorf("%w: %d sequences run", ErrQueueFull, e.slots())
	}
	matched := s.matchable(e.info.KV.BlockSize)
	matched = matched[:e.pool.Match(matched)]
	fresh := e.blocksFor(room) - len(matched)
	if left := e.pool.Available() - e.pool.pinnedByMatch(matched); left < fresh+e.headroom() {
		return fmt.Errorf("%w: %d needed, %d left", ErrNoBlocks, fresh, left)
	}
	blocks, err := e.pool.Acquire(matched, fresh)
	if err != nil {
		return err
	}
	e.pool.MarkIncoming(blocks[len(matched):])
	s.blocks, s.computed, s.registered = blocks, len(matched)*e.info.KV.BlockSize, len(matched)
	s.state, s.incoming, s.counted, s.cached = seqIncoming, i, true, s.computed
	s.arrived = e.cfg.Now()
	i.Blocks, i.CachedBlocks = slices.Clone(blocks), len(matched)
	e.seqs[s.id] = s
	e.apart++
	e.count.RequestsTotal++
	e.wg.Add(1)
	return nil
}

// Context ends when the engine stops. The holder then makes sure that all writes have
// ended and calls Release.
func (i *Import) Context() context.Context { return i.ctx }

// Commit declares that the KV of the first computed tokens is in place and that all
// writes have ended. It parks the sequence. more holds the tokens generated since the
// request was made. Commit does not wait for the scheduler.
func (i *Import) Commit(more []uint32, computed int) error {
	s := i.s
	tokens := append(slices.Clone(s.tokens), more...)
	bs := i.e.info.KV.BlockSize
	switch {
	case i.committed:
		return fmt.Errorf("%w: committed twice", ErrBadRequest)
	case computed < i.CachedBlocks*bs || computed >= len(tokens) || computed > len(i.Blocks)*bs:
		return fmt.Errorf("%w: KV of %d of %d tokens in %d blocks", ErrBadRequest, computed, len(tokens), len(i.Blocks))
	case len(more) >= s.gen.stop.MaxTokens:
		return fmt.Errorf("%w: %d more tokens, %d were wanted", ErrBadRequest, len(more), s.gen.stop.MaxTokens)
	}
	if err := i.e.validate(tokens, 1); err != nil {
		return err
	}
	if s.gen.constraint != nil {
		if err := replay(s.gen.constraint, more); err != nil {
			return err
		}
	}
	i.committed, i.tokens = true, tokens
	i.post(func() {
		i.land()
		s.computed = computed
		if s.state != seqIncoming { // the engine stops
			return
		}
		s.tokens = append(s.tokens, more...)
		// From here on the request counts as if it had come with all of these tokens.
		s.given = len(s.tokens)
		s.gen.stop.MaxTokens -= len(more)
		s.gen.stop.MinTokens = max(s.gen.stop.MinTokens-len(more), 0)
		s.state = seqParked
		i.e.registerComputed(s)
	})
	return nil
}

// Tokens returns the tokens of a committed import: prompt, then output.
func (i *Import) Tokens() []uint32 { return i.tokens }

// Attach makes a committed sequence run and returns the stream of its further output.
// from names the worker where it ran until now. cached is how many tokens of its prompt
// that worker found in a prefix cache.
func (i *Import) Attach(from string, cached int) *Stream {
	s := i.s
	i.post(func() {
		alive := s.state == seqParked
		i.end()
		if !alive {
			i.e.cancel(s, protocol.FinishError, ErrClosed)
			return
		}
		now := i.e.cfg.Now()
		s.arrived, s.admitted, s.cached = now, now, cached
		s.gen.first = &FirstToken{Cached: cached, Remote: true, Why: from}
		i.e.run(s)
	})
	return s.gen.out
}

// Release gives slot and blocks back. All writes to the blocks must have ended.
func (i *Import) Release(err error) {
	i.post(func() { i.release(err) })
}

func (i *Import) release(err error) {
	i.land()
	i.end()
	i.e.cancel(i.s, protocol.FinishError, err)
}

// Quarantine ends the import although a peer may still write to the incoming blocks. The
// blocks stay unused until lift is called.
func (i *Import) Quarantine() (lift func()) {
	incoming := i.Blocks[i.CachedBlocks:]
	i.post(func() {
		i.e.pool.Quarantine(incoming)
		i.landed = true
		i.end()
		i.e.cancel(i.s, protocol.FinishError, errors.New("writer not stopped"))
	})
	return func() { i.post(func() { i.e.pool.Land(incoming) }) }
}

// land ends the incoming state of the blocks; it does so once.
func (i *Import) land() {
	if !i.landed {
		i.landed = true
		i.e.pool.Land(i.Blocks[i.CachedBlocks:])
	}
}

// end gives the slot back. It runs on the scheduler's goroutine.
func (i *Import) end() {
	i.s.incoming = nil
	i.e.apart--
	i.cancel(context.Canceled)
	i.e.wg.Done()
}

// post posts f. The engine serves its mailbox until all imports have ended.
func (i *Import) post(f func()) { i.e.post(f) }
