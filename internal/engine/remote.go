package engine

import (
	"context"
	"sync"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Reservation is a prompt whose KV blocks a remote worker fills. The goroutine that
// Request.Remote runs in must call exactly one of Start, Fallback, Release or Quarantine.
// Until then the engine keeps the blocks, even if the request ends.
type Reservation struct {
	RequestID string
	// Prompt is the whole prompt. KV is wanted for all but its last token.
	Prompt []uint32
	// Blocks is the block table of Prompt[:len-1]; the first CachedBlocks of them
	// hold valid KV and are shared, the rest are incoming.
	Blocks       []int32
	CachedBlocks int

	e      *Engine
	s      *sequence
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  bool // by one of the ending calls; owned by the scheduler
}

// Context ends when the request is cancelled or the engine stops. The holder then makes
// sure that all writes have ended and calls Release.
func (r *Reservation) Context() context.Context { return r.ctx }

// Wanted returns how many tokens of KV the reservation asks for.
func (r *Reservation) Wanted() int { return len(r.Prompt) - 1 }

// Start declares that the KV of all but the last prompt token is in place. The sequence
// joins the batch. by names the worker that computed the KV.
func (r *Reservation) Start(by string) {
	r.finish(func(s *sequence) {
		s.computed = r.Wanted()
		s.gen.first.Remote, s.gen.first.Why = true, by
		r.e.count.RemotePrefillTotal++
		r.e.registerComputed(s)
		r.e.run(s)
	})
}

// Fallback declares that the blocks will not be filled and that all writes have ended.
// The sequence joins the batch and is prefilled in this engine.
func (r *Reservation) Fallback(why string) {
	r.finish(func(s *sequence) {
		s.gen.first.Why = why
		r.e.count.FallbackTotal++
		r.e.count.LocalPrefillTotal++
		r.e.run(s)
	})
}

// Release gives the blocks back without running the sequence. All writes to them must
// have ended. If the request was not cancelled, it fails with err.
func (r *Reservation) Release(err error) {
	r.finish(func(s *sequence) { r.e.cancel(s, protocol.FinishError, err) })
}

// Quarantine ends the reservation although a peer may still write to the blocks. They
// stay unused until lift is called. The sequence starts again with other blocks and is
// prefilled in this engine.
func (r *Reservation) Quarantine(why string) (lift func()) {
	incoming := r.Blocks[r.CachedBlocks:]
	r.post(func() {
		if r.ended {
			panic("engine: reservation ended twice")
		}
		r.ended = true
		r.e.countRemote(r.s, -1)
		r.e.pool.Quarantine(incoming)
		s := r.s
		r.e.pool.Release(s.blocks)
		s.blocks, s.computed, s.registered, s.reserve = nil, 0, 0, nil
		if s.state == seqDone {
			r.e.forget(s)
			return
		}
		r.e.count.FallbackTotal++
		s.gen.first.Why, s.gen.decide = why, nil
		s.state = seqWaiting
		s.place = r.e.waiting.PushFront(s.tenant, s, 0)
	})
	return func() { r.post(func() { r.e.pool.Land(incoming) }) }
}

// finish lands the blocks and, if the request still lives, calls next.
func (r *Reservation) finish(next func(*sequence)) {
	r.post(func() {
		if r.ended {
			panic("engine: reservation ended twice")
		}
		r.ended = true
		r.e.countRemote(r.s, -1)
		s := r.s
		r.e.pool.Land(r.Blocks[r.CachedBlocks:])
		s.reserve = nil
		if s.state == seqDone || r.e.closing {
			r.e.cancel(s, protocol.FinishCancelled, nil)
			return
		}
		next(s)
	})
}

// post posts f. The engine serves its mailbox until all reservations have ended.
func (r *Reservation) post(f func()) { r.e.post(f) }

// offer asks the request, at admission, whether its prompt should be prefilled remotely,
// and if so makes a reservation. It returns false for a local prefill.
func (e *Engine) offer(s *sequence, cachedBlocks int) bool {
	g := s.gen
	bs := e.info.KV.BlockSize
	// Blocks for all but the last prompt token; the last is computed here.
	wanted := (len(s.tokens) - 1 + bs - 1) / bs
	if g.decide == nil || g.remote == nil || wanted <= cachedBlocks {
		g.first.Why = "short"
		return false
	}
	d := g.decide(len(s.tokens), cachedBlocks*bs)
	g.first.Why = d.Why
	if !d.Remote {
		return false
	}
	// A retry of the same sequence, for example after a preemption, stays local.
	g.decide = nil
	r := &Reservation{
		RequestID: s.id, Prompt: s.tokens[:len(s.tokens):len(s.tokens)],
		Blocks: s.blocks[:wanted:wanted], CachedBlocks: cachedBlocks,
		e: e, s: s,
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	e.pool.MarkIncoming(r.Blocks[cachedBlocks:])
	s.state, s.reserve = seqRemote, r
	e.countRemote(s, 1)
	if e.stepped() {
		g.remote(r)
		return true
	}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		defer r.cancel(nil)
		g.remote(r)
	}()
	return true
}

// Held is a computed prompt whose blocks stay readable for a remote peer. The engine does
// not stop before Release.
type Held struct {
	Blocks []int32
	Tokens int // leading tokens whose KV is in Blocks
	Cached int // of these, how many came from the prefix cache

	e    *Engine
	once sync.Once
}

// Ending is closed when the engine begins to stop. The engine then waits for Release.
func (h *Held) Ending() <-chan struct{} { return h.e.ends }

// Release gives the blocks back. Further calls do nothing.
func (h *Held) Release() {
	h.once.Do(func() { h.e.post(h.unhold) })
}

// unhold runs on the scheduler's goroutine.
func (h *Held) unhold() {
	h.e.pool.Unhold(h.Blocks)
	h.e.wg.Done()
}
