package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/fairqueue"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Engine runs sequences on a backend. The goroutine in Run owns all state. The other
// methods may be called from any goroutine while Run runs.
type Engine struct {
	cfg     Config
	backend Backend
	chooser Chooser // the backend if it implements Chooser, else nil
	info    BackendInfo
	log     *slog.Logger

	mail  chan func()    // executed by Run between steps; nil in a Stepper
	asked atomic.Bool    // a probe is in mail
	ends  chan struct{}  // closed when Run begins to end
	done  chan struct{}  // closed when Run has returned
	wg    sync.WaitGroup // holders of reservations, held prompts, exports and imports
	masks sync.WaitGroup // masks computed in parallel to a step
	stats atomic.Pointer[cluster.WorkerStats]

	// Owned by Run.
	pool    *BlockPool
	seqs    map[string]*sequence
	waiting fairqueue.Queue[*sequence]
	encodes int            // sequences in seqEncoding
	remote  int            // sequences in seqRemote
	away    map[string]int // those in seqRemote and seqEncoding, for each tenant that has any
	apart   int            // sequences in seqPaused, seqIncoming or seqParked
	running []*sequence    // in order of admission, oldest first
	batch   []BatchSeq
	parts   []*sequence // parts[i] belongs to batch[i]
	work    stepWork    // of batch
	turn    []*sequence // scratch of assemble
	hungry  []string    // scratch of addPrompts
	streams bool        // an entry of batch produces output, so a client waits for its next token
	pace    pace
	// drafts bounds the drafted tokens in batch; draftRows holds their logits.
	drafts    [2]int
	draftRows [][]float32
	draftSeed uint64
	sampler   sampler
	rows      [][]float32 // logits of prompt positions, rowsUsed of them in this step
	rowsUsed  int
	outbox    []delivery // output of the current step
	draining  bool
	closing   bool
	failures  int             // consecutive failed steps
	broken    error           // after too many of them
	life      context.Context // of Run
	count     cluster.WorkerStats
}

// New returns an engine over backend, whose KV memory must have cfg.NumBlocks
// blocks. The caller starts it with Run.
func New(cfg Config, backend Backend) (*Engine, error) {
	info := backend.Info()
	cfg, err := cfg.withDefaults(info)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:     cfg,
		backend: backend,
		info:    info,
		log:     cfg.Log,
		mail:    make(chan func(), 256),
		ends:    make(chan struct{}),
		done:    make(chan struct{}),
		pool:    NewBlockPool(cfg.NumBlocks, cfg.Sink),
		seqs:    make(map[string]*sequence),
		away:    make(map[string]int),
		pace:    pace{target: cfg.ITLTarget},
		life:    context.Background(),

		draftSeed: rand.Uint64(),
	}
	e.chooser, _ = backend.(Chooser)
	e.publishStats()
	return e, nil
}

// MaxModelLen returns the most tokens that one sequence may have, prompt and output.
func (e *Engine) MaxModelLen() int { return e.cfg.MaxModelLen }

// Run schedules steps until ctx ends or the backend fails for good. It then ends every
// sequence, waits until all holders have released their blocks, and returns the cause.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	e.life = ctx
	err := e.loop(ctx)
	e.shutDown()
	return err
}

func (e *Engine) loop(ctx context.Context) error {
	for {
		e.readMail()
		if e.broken != nil {
			return e.broken
		}
		progress, err := e.tick(ctx)
		if err != nil {
			return err
		}
		if progress {
			// Let the readers run before the next step takes the core again. Otherwise
			// tokens would reach clients in bunches on a busy machine.
			goruntime.Gosched()
			continue
		}
		// Nothing can be computed until something else happens.
		select {
		case f := <-e.mail:
			f()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tick computes one step and hands out its output. progress is false when there was
// nothing to compute.
func (e *Engine) tick(ctx context.Context) (progress bool, err error) {
	if e.waiting.Len()+len(e.running) > 0 {
		progress, err = e.step(ctx)
		e.deliver()
	}
	if !progress {
		e.pace.pause()
	}
	return progress, err
}

// delivery is output on its way to a stream.
type delivery struct {
	to  *Stream
	out Output
}

// deliver publishes the statistics and then hands out the output of the step. So a reader
// that sees a request end finds it counted, too.
func (e *Engine) deliver() {
	e.publishStats()
	for _, d := range e.outbox {
		d.to.push(d.out)
	}
	clear(e.outbox)
	e.outbox = e.outbox[:0]
}

// shutDown ends all sequences and serves the mailbox until all holders have released
// their blocks.
func (e *Engine) shutDown() {
	e.closing = true
	close(e.ends)
	for _, s := range e.seqs {
		e.cancel(s, protocol.FinishError, ErrClosed)
	}
	idle := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(idle)
	}()
	for {
		select {
		case f := <-e.mail:
			f()
		case <-idle:
			e.readMail()
			return
		}
	}
}

// Submit queues a request for admission and returns the stream of its output.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	s, err := e.newSequence(&r)
	if err != nil {
		return nil, err
	}
	if err := e.enqueue(ctx, s); err != nil {
		return nil, err
	}
	return s.gen.out, nil
}

// newSequence makes a sequence from a request, or returns why the request is invalid.
func (e *Engine) newSequence(r *Request) (*sequence, error) {
	if err := e.check(r); err != nil {
		return nil, err
	}
	s := &sequence{
		id:     r.ID,
		tenant: r.Tenant,
		tokens: append(make([]uint32, 0, len(r.Tokens)+min(r.Stop.MaxTokens, 256)), r.Tokens...),
		prompt: len(r.Tokens) - r.Generated,
		given:  len(r.Tokens),
		gen:    newGeneration(r, e.info.TokenLimit),
		chain:  e.chain(&r.Media),
		embed:  r.Media.Embed,

		positions: NewPositions(r.Media.Parts, r.Media.Grids),
	}
	if r.Constraint != nil {
		if err := replay(r.Constraint, s.tokens[s.prompt:]); err != nil {
			return nil, err
		}
	}
	s.gen.drafter = newDrafter(e.cfg.Speculative, e.draftSeed)
	s.gen.out = newStream(r.ID, func() { e.abort(s) })
	return s, nil
}

// Prefill computes the KV of a prompt and returns its blocks, which stay readable until
// Held.Release. If ctx ends first, the computation is cancelled.
func (e *Engine) Prefill(ctx context.Context, r PrefillRequest) (*Held, error) {
	s, err := e.submitPrefill(ctx, r)
	if err != nil {
		return nil, err
	}
	select {
	case res := <-s.prefill.done:
		return res.held, res.err
	case <-ctx.Done():
		e.abort(s)
		return nil, context.Cause(ctx)
	}
}

func (e *Engine) submitPrefill(ctx context.Context, r PrefillRequest) (*sequence, error) {
	if err := e.validate(r.Tokens, 0); err != nil {
		return nil, err
	}
	if err := r.Media.check(len(r.Tokens), e.cfg.MaxBatchTokens, &e.info); err != nil {
		return nil, err
	}
	s := &sequence{
		id: r.ID, tenant: r.Tenant, tokens: r.Tokens, prompt: len(r.Tokens), given: len(r.Tokens),
		chain:     e.chain(&r.Media),
		embed:     r.Media.Embed,
		positions: NewPositions(r.Media.Parts, r.Media.Grids),
		prefill:   &prefillOnly{progress: r.Progress, done: make(chan prefillResult, 1)},
	}
	return s, e.enqueue(ctx, s)
}

// chain returns the chain of a sequence that has no hashes yet.
func (e *Engine) chain(m *Media) blockhash.Chain {
	return blockhash.Chain{BlockSize: e.info.KV.BlockSize, Seed: e.cfg.HashSeed, Media: m.Parts}
}

func (e *Engine) enqueue(ctx context.Context, s *sequence) error {
	s.arrived = e.cfg.Now()
	refused, err := ask(ctx, e, func() error { return e.accept(s) })
	if err != nil {
		e.abort(s) // it may be accepted after ctx ended
		return err
	}
	return refused
}

// accept appends s to the queue or returns an error.
func (e *Engine) accept(s *sequence) error {
	err := func() error {
		switch {
		case e.closing:
			return ErrClosed
		case e.draining:
			return ErrDraining
		case e.seqs[s.id] != nil:
			return fmt.Errorf("%w: request id %q is in use", ErrBadRequest, s.id)
		case e.waiting.Len() >= e.cfg.MaxWaiting && !e.displace(s):
			return fmt.Errorf("%w: %d requests wait", ErrQueueFull, e.waiting.Len())
		}
		return nil
	}()
	if err != nil {
		e.count.RejectedTotal++
		return err
	}
	e.seqs[s.id] = s
	s.place = e.waiting.Push(s.tenant, s, 0)
	e.count.RequestsTotal++
	return nil
}

// abort cancels a sequence from any goroutine and does not wait for the scheduler. The
// caller must not wait for the result of an aborted prefill.
func (e *Engine) abort(s *sequence) {
	e.post(func() {
		if e.seqs[s.id] == s && s.state != seqDone {
			e.cancel(s, protocol.FinishCancelled, nil)
			e.count.CancelledTotal++
		}
		if s.prefill != nil {
			select {
			case res := <-s.prefill.done: // it may have succeeded just before
				if res.held != nil {
					res.held.once.Do(res.held.unhold)
				}
			default:
			}
		}
	})
}

// StopAdmission makes Submit and Prefill fail with ErrDraining. Requests that wait or run
// continue.
func (e *Engine) StopAdmission(ctx context.Context) error { return e.setDraining(ctx, true) }

// ResumeAdmission accepts new requests again.
func (e *Engine) ResumeAdmission(ctx context.Context) error { return e.setDraining(ctx, false) }

func (e *Engine) setDraining(ctx context.Context, on bool) error {
	_, err := ask(ctx, e, func() bool { e.draining = on; return on })
	return err
}

// ClearCache empties the prefix cache and returns how many blocks it held.
func (e *Engine) ClearCache(ctx context.Context) (int, error) {
	return ask(ctx, e, func() int { return e.pool.Clear() })
}

// Resident returns the hashes of all blocks that the prefix cache finds. It calls at at
// that moment, between two events of the sink.
func (e *Engine) Resident(ctx context.Context, at func()) ([]uint64, error) {
	return ask(ctx, e, func() []uint64 {
		at()
		return e.pool.Resident()
	})
}

// Check verifies the consistency of the block pool. With idle it also verifies that no
// block is in use.
func (e *Engine) Check(ctx context.Context, idle bool) error {
	check := e.pool.Check
	if idle {
		check = e.pool.CheckIdle
	}
	select {
	case <-e.done: // Run has ended and no longer touches the pool
		return check()
	default:
	}
	bad, err := ask(ctx, e, check)
	return errors.Join(bad, err)
}
