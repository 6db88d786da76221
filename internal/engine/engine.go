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
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/fairqueue"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Engine runs sequences on a backend. Run owns everything; the other methods may
// be called from any goroutine while it runs.
type Engine struct {
	cfg     Config
	backend Backend
	chooser Chooser // the backend, if it is one
	info    BackendInfo
	log     *slog.Logger

	mail  chan func()    // executed by Run between steps
	ends  chan struct{}  // closed when Run begins to end
	done  chan struct{}  // closed when Run has returned
	wg    sync.WaitGroup // holders of reservations, held prompts, exports and imports
	masks sync.WaitGroup // masks that are made beside a step
	stats atomic.Pointer[cluster.WorkerStats]

	// Owned by Run.
	pool    *BlockPool
	seqs    map[string]*sequence
	waiting fairqueue.Queue[*sequence]
	remote  int            // sequences in seqRemote
	remotes map[string]int // the same of each tenant that has any
	apart   int            // sequences in seqPaused, seqIncoming or seqParked
	running []*sequence    // in order of admission, oldest first
	batch   []BatchSeq
	parts   []*sequence // parts[i] belongs to batch[i]
	work    stepWork    // of batch
	turn    []*sequence // scratch of assemble
	hungry  []string    // scratch of addPrompts
	streams bool        // batch goes on with an output: somebody waits for its next token
	pace    pace
	// drafts are the bounds of the proposed tokens in batch, draftRows their logits.
	drafts    [2]int
	draftRows [][]float32
	draftSeed uint64
	sampler   sampler
	rows      [][]float32 // logits of prompt positions, rowsUsed of them in this step
	rowsUsed  int
	outbox    []delivery // output of the step at hand
	draining  bool
	closing   bool
	failures  int // consecutive failed steps
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
		remotes: make(map[string]int),
		pace:    pace{target: cfg.ITLTarget},

		draftSeed: rand.Uint64(),
	}
	e.chooser, _ = backend.(Chooser)
	e.publishStats()
	return e, nil
}

// MaxModelLen is the largest number of tokens of one sequence, prompt and output.
func (e *Engine) MaxModelLen() int { return e.cfg.MaxModelLen }

// Run schedules steps until ctx ends or the backend is broken. It ends every
// sequence, waits for those who hold blocks, and returns the cause.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	err := e.loop(ctx)
	e.shutDown()
	return err
}

func (e *Engine) loop(ctx context.Context) error {
	for {
		e.readMail()
		if e.waiting.Len() == 0 && len(e.running) == 0 {
			e.pace.pause()
			select {
			case f := <-e.mail:
				f()
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		progress, err := e.step(ctx)
		e.deliver()
		if err != nil {
			return err
		}
		if progress {
			continue
		}
		// Waiting sequences cannot be admitted until something else happens.
		e.pace.pause()
		select {
		case f := <-e.mail:
			f()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// delivery is output on its way to a stream.
type delivery struct {
	to  *Stream
	out Output
}

// deliver publishes the statistics and then hands out what the step produced, so
// that whoever sees a request end also sees it counted.
func (e *Engine) deliver() {
	e.publishStats()
	for _, d := range e.outbox {
		d.to.push(d.out)
	}
	if len(e.outbox) > 0 {
		// Let the readers run before the next step takes the core again: on a busy
		// machine tokens would otherwise reach clients in bunches.
		goruntime.Gosched()
	}
	clear(e.outbox)
	e.outbox = e.outbox[:0]
}

func (e *Engine) readMail() {
	for {
		select {
		case f := <-e.mail:
			f()
		default:
			e.publishStats()
			return
		}
	}
}

// shutDown ends all sequences and serves the mailbox until the holders of
// blocks have given them back.
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

// ask runs f on the scheduler's goroutine and returns its result, when the statistics
// have what it changed. If ctx ends first, f may still run later.
func ask[T any](ctx context.Context, e *Engine, f func() T) (T, error) {
	result := make(chan T, 1)
	var none T
	select {
	case e.mail <- func() {
		v := f()
		e.publishStats()
		result <- v
	}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-e.done:
		return none, ErrClosed
	}
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-e.done:
	}
	select { // it may have been the last mail that was read
	case v := <-result:
		return v, nil
	default:
		return none, ErrClosed
	}
}

// Submit admits a request to the queue and returns the stream of its output.
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

// newSequence makes a sequence of a request, or says why there cannot be one.
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
		chain:  blockhash.Chain{BlockSize: e.info.KV.BlockSize, Seed: e.cfg.HashSeed},
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

// Prefill computes the KV of a prompt and returns its blocks, held for reading
// until Release. When ctx ends, the work is cancelled.
func (e *Engine) Prefill(ctx context.Context, r PrefillRequest) (*Held, error) {
	if err := e.validate(r.Tokens, 0); err != nil {
		return nil, err
	}
	s := &sequence{
		id: r.ID, tenant: r.Tenant, tokens: r.Tokens, prompt: len(r.Tokens), given: len(r.Tokens),
		chain:   blockhash.Chain{BlockSize: e.info.KV.BlockSize, Seed: e.cfg.HashSeed},
		prefill: &prefillOnly{progress: r.Progress, done: make(chan prefillResult, 1)},
	}
	if err := e.enqueue(ctx, s); err != nil {
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

func (e *Engine) enqueue(ctx context.Context, s *sequence) error {
	s.arrived = time.Now()
	refused, err := ask(ctx, e, func() error { return e.accept(s) })
	if err != nil {
		e.abort(s) // it may be accepted later than ctx ended
		return err
	}
	return refused
}

// accept appends s to the queue or says why not.
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

// abort cancels a sequence from outside. It does not wait for that to happen.
// Nobody may wait for the result of an aborted prefill.
func (e *Engine) abort(s *sequence) {
	cancel := func() {
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
	}
	select {
	case e.mail <- cancel:
	case <-e.done:
	}
}

// StopAdmission refuses new requests from now on; what waits or runs goes on.
func (e *Engine) StopAdmission(ctx context.Context) error { return e.setDraining(ctx, true) }

// ResumeAdmission accepts new requests again.
func (e *Engine) ResumeAdmission(ctx context.Context) error { return e.setDraining(ctx, false) }

func (e *Engine) setDraining(ctx context.Context, on bool) error {
	_, err := ask(ctx, e, func() bool { e.draining = on; return on })
	return err
}

// ClearCache forgets the prefix cache and returns how many blocks it held.
func (e *Engine) ClearCache(ctx context.Context) (int, error) {
	return ask(ctx, e, func() int { return e.pool.Clear() })
}

// Check proves the consistency of the block pool, and with idle also that no
// block is in use.
func (e *Engine) Check(ctx context.Context, idle bool) error {
	check := e.pool.Check
	if idle {
		check = e.pool.CheckIdle
	}
	select {
	case <-e.done: // Run has ended, nobody else touches the pool
		return check()
	default:
	}
	bad, err := ask(ctx, e, check)
	return errors.Join(bad, err)
}
