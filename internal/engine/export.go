package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Errors of exports.
var (
	// ErrNotMovable is returned for a sequence that does not run, is being moved already,
	// or owes the log probabilities of its prompt.
	ErrNotMovable = errors.New("sequence cannot be moved")
	// ErrGone is returned when a sequence ended or lost its blocks during its export.
	ErrGone = errors.New("sequence ended or was preempted")
)

// Export is a running sequence that is being moved to another engine. The sequence keeps
// running until Pause. The holder must call Abandon or Complete. Until then the engine
// keeps the blocks that it handed out, even if the sequence ends.
//
// An Export is not safe for concurrent use.
type Export struct {
	RequestID string

	e      *Engine
	s      *sequence
	ctx    context.Context
	cancel context.CancelCauseFunc
	held   []int32 // owned by the scheduler
	ended  bool    // owned by the holder
}

// ExportState describes the progress of a sequence.
type ExportState struct {
	Tokens   []uint32 // prompt, then output; read-only
	Output   int      // how many of Tokens this engine generated since the request came
	Computed int      // leading tokens whose KV is in the blocks, at least one less than there are
	Cached   int      // prompt tokens found in the prefix cache; 0 once a stream has reported it
}

// Exportable returns the ids of the sequences that Export accepts at present, oldest
// first.
func (e *Engine) Exportable(ctx context.Context) ([]string, error) {
	return ask(ctx, e, func() (ids []string) {
		for _, s := range slices.SortedFunc(slices.Values(e.running), func(a, b *sequence) int { return a.arrived.Compare(b.arrived) }) {
			if s.movable() {
				ids = append(ids, s.id)
			}
		}
		return ids
	})
}

func (s *sequence) movable() bool {
	return s.state == seqRunning && s.gen != nil && s.gen.scores == nil && s.export == nil
}

// Export begins to move a sequence to another engine. It fails with ErrNotMovable.
func (e *Engine) Export(ctx context.Context, id string) (*Export, error) {
	x := &Export{RequestID: id, e: e}
	x.ctx, x.cancel = context.WithCancelCause(context.Background())
	begin := func() error {
		s := e.seqs[id]
		if s == nil || !s.movable() || e.closing {
			return fmt.Errorf("%w: %s", ErrNotMovable, id)
		}
		e.wg.Add(1)
		x.s, s.export = s, x
		return nil
	}
	refused, err := ask(ctx, e, begin)
	if err != nil {
		x.post(func() { // it may begin after ctx ended
			if x.s != nil {
				x.end()
			}
		})
	}
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return x, nil
}

// Context ends when the sequence has ended or lost its blocks, or when the engine stops.
// The holder then calls Abandon.
func (x *Export) Context() context.Context { return x.ctx }

// State returns the current progress of the sequence.
func (x *Export) State(ctx context.Context) (ExportState, error) {
	v, err := x.ask(ctx, func() exported { return exported{state: x.state()} })
	return v.state, err
}

func (x *Export) state() ExportState {
	s := x.s
	st := ExportState{Tokens: s.tokens[:len(s.tokens):len(s.tokens)], Output: s.output(), Computed: s.computed}
	if s.gen.first != nil {
		st.Cached = s.gen.first.Cached
	}
	return st
}

// Full returns the full blocks, beginning with the block at index from. Their KV is
// complete and no longer changes. They stay readable until the export ends.
func (x *Export) Full(ctx context.Context, from int) (blocks []int32, err error) {
	v, err := x.ask(ctx, func() exported { return exported{blocks: x.hold(from, x.s.computed/x.e.info.KV.BlockSize)} })
	return v.blocks, err
}

// Pause takes the sequence out of the batch. It returns the final state and the blocks
// from index from on, including the partly filled one. Resume or Abandon puts the
// sequence back.
func (x *Export) Pause(ctx context.Context, from int) (st ExportState, blocks []int32, err error) {
	v, err := x.ask(ctx, func() exported {
		s := x.s
		if s.state == seqRunning {
			x.e.running = slices.DeleteFunc(x.e.running, func(o *sequence) bool { return o == s })
			x.e.apart++
			s.state = seqPaused
		}
		return exported{x.state(), x.hold(from, x.e.blocksFor(s.computed)), nil}
	})
	return v.state, v.blocks, err
}

// Resume puts a paused sequence back into the batch. The export continues.
func (x *Export) Resume() { x.post(x.resume) }

func (x *Export) resume() {
	s := x.s
	if s.state != seqPaused || s.export != x {
		return
	}
	x.e.apart--
	s.state = seqRunning
	at := slices.IndexFunc(x.e.running, func(o *sequence) bool { return o.admitted.After(s.admitted) })
	if at < 0 {
		at = len(x.e.running)
	}
	x.e.running = slices.Insert(x.e.running, at, s) // its age has not changed
}

// Abandon ends an export without a move. The sequence, if it still lives, continues in
// this engine. Abandon does nothing after Complete.
func (x *Export) Abandon() {
	if x.ended {
		return
	}
	x.ended = true
	x.post(func() {
		x.resume()
		x.end()
	})
}

// Complete hands a paused sequence over to another engine. Its stream ends with
// FinishMoved and to, and its blocks are released. Complete returns false if the stream
// had already ended; the reader then does not follow to the other engine.
func (x *Export) Complete(to protocol.Moved) bool {
	x.ended = true
	x.post(func() { // first, so that the reader cannot cancel what has moved
		s, e := x.s, x.e
		if s.state == seqPaused {
			e.apart--
			s.state = seqDone
			e.pool.Release(s.blocks)
			s.blocks = nil
			e.forget(s)
			e.count.MovedTotal++
		}
		x.end()
	})
	// This bypasses the scheduler, which may be in a long step while the reader waits for
	// the next token. The scheduler pushes nothing for a paused sequence, unless it is
	// cancelled; then the first push wins.
	g := x.s.gen
	return g.out.push(Output{Finish: protocol.FinishMoved, Moved: &to, Decoded: g.to.Sub(g.from)})
}

// hold returns blocks and keeps them readable. It runs on the scheduler's goroutine.
func (x *Export) hold(from, to int) []int32 {
	if from >= to {
		return nil
	}
	blocks := slices.Clone(x.s.blocks[from:to])
	x.e.pool.Hold(blocks)
	x.held = append(x.held, blocks...)
	return blocks
}

// end releases the blocks of the export. It runs on the scheduler's goroutine.
func (x *Export) end() {
	x.e.pool.Unhold(x.held)
	x.held = nil
	if x.s.export == x {
		x.s.export = nil
	}
	x.cancel(context.Canceled)
	x.e.wg.Done()
}

// loseExport ends the context of the sequence's export, if it has one, with cause.
func (s *sequence) loseExport(cause error) {
	if s.export != nil {
		s.export.cancel(cause)
		s.export = nil
	}
}

// exported is the scheduler's answer to a question about an export.
type exported struct {
	state  ExportState
	blocks []int32
	err    error
}

// ask runs f on the scheduler's goroutine if the sequence can still move. If ctx ends
// first, f may still run later. Blocks that f then holds are released with the export.
func (x *Export) ask(ctx context.Context, f func() exported) (exported, error) {
	v, err := ask(ctx, x.e, func() exported {
		if x.s.export != x {
			return exported{err: fmt.Errorf("%w: %s", ErrGone, x.RequestID)}
		}
		return f()
	})
	return v, cmp.Or(err, v.err)
}

// post posts f. The engine serves its mailbox until all exports have ended.
func (x *Export) post(f func()) { x.e.post(f) }

// GiveBack ends, with ErrDraining, the sequences that have no KV worth moving: those that
// wait for admission, embeddings or a remote prefill. Their senders retry on another engine. It
// returns how many there were.
func (e *Engine) GiveBack(ctx context.Context) (int, error) {
	return ask(ctx, e, func() (n int) {
		for _, s := range e.seqs {
			if s.gen != nil && (s.state == seqWaiting || s.state == seqRemote || s.state == seqEncoding) {
				e.cancel(s, protocol.FinishError, ErrDraining)
				e.count.MovedTotal++
				n++
			}
		}
		return n
	})
}
