package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/undo"
)

// rig is an engine alone, without worker, node or frontend.
type rig struct {
	engine *engine.Engine
	info   engine.BackendInfo
	mem    engine.KVPool
	device *cpu.Device // nil with another backend

	requests atomic.Uint64
	log      *slog.Logger
	back     undo.Stack
}

const (
	rigBlockSize = 64 // tokens
	// stopStep bounds each step of stopping.
	stopStep = 10 * time.Second
)

// newRig starts an engine over a backend. Closing the rig closes the backend.
func newRig(ctx context.Context, b engine.Backend, blocks int, log *slog.Logger) (_ *rig, err error) {
	r := &rig{info: b.Info(), log: log}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.back.Push("close the backend", func(context.Context) error { return b.Close() })
	if r.mem, err = b.AllocKV(blocks); err != nil {
		return nil, err
	}
	r.back.Push("free the KV pool", func(context.Context) error { return r.mem.Close() })
	if r.engine, err = engine.New(engine.Config{NumBlocks: blocks}, b); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.engine.Run(running) // a broken engine fails its streams too
	}()
	r.back.Push("stop the engine", func(context.Context) error { stop(); <-ended; return nil })
	return r, nil
}

// newCPURig loads a model onto a device with the given number of cores.
func newCPURig(ctx context.Context, m *model.Model, cores, blocks int, log *slog.Logger) (*rig, error) {
	w, err := loadWeights(m, cores)
	if err != nil {
		return nil, err
	}
	return w.rig(ctx, blocks, log)
}

// loaded is a model's weights on a separate device.
type loaded struct {
	device  *cpu.Device
	weights *cpu.Weights
}

func loadWeights(m *model.Model, cores int) (loaded, error) {
	d := cpu.NewDevice("cpu:0", cores)
	w, err := d.Load(m)
	if err != nil {
		return loaded{}, errors.Join(err, d.Close())
	}
	return loaded{d, w}, nil
}

// rig starts an engine with the given number of KV blocks. The rig then owns device and
// weights.
func (l loaded) rig(ctx context.Context, blocks int, log *slog.Logger) (*rig, error) {
	b, err := l.weights.NewBackend(cpu.Options{BlockSize: rigBlockSize, KVDType: cpu.KVAuto})
	if err != nil {
		return nil, errors.Join(err, l.device.Close(), l.weights.Close())
	}
	r, err := newRig(ctx, deviceBackend{b, l.device, l.weights}, blocks, log)
	if err != nil {
		return nil, fmt.Errorf("start engine: %w", err)
	}
	r.device = l.device
	return r, nil
}

// deviceBackend owns the device and the weights of its backend.
type deviceBackend struct {
	engine.Backend
	device  *cpu.Device
	weights *cpu.Weights
}

func (b deviceBackend) Close() error {
	return errors.Join(b.Backend.Close(), b.device.Close(), b.weights.Close())
}

func (r *rig) close() { r.back.Run(stopStep, r.log) }

// prompt returns n random tokens, so that no prefix is ever cached.
func (r *rig) prompt(n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = rand.Uint32N(uint32(r.info.TokenLimit))
	}
	return p
}

// generation describes how one sequence runs.
type generation struct {
	tokens []uint32
	output int
	// window, if set, ends the sequence before its output is complete.
	window *window
	// given reports that the KV of all but the last token counts as computed: the pool's
	// content is used as it is.
	given bool
	// gate, if set, makes given sequences begin together.
	gate *gate
}

// gate opens when the given number of sequences has arrived.
type gate struct {
	left   atomic.Int32
	open   chan struct{}
	opened time.Time // opening time; read only after pass
}

func newGate(seqs int) *gate {
	g := &gate{open: make(chan struct{})}
	g.left.Store(int32(seqs))
	return g
}

// pass waits until all sequences have arrived. ctx ends if one of them cannot come.
func (g *gate) pass(ctx context.Context) error {
	if g.left.Add(-1) == 0 {
		g.opened = time.Now()
		close(g.open)
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// window is the time in which sequences decode concurrently. It begins when all of them
// have their first token.
type window struct {
	length time.Duration
	left   atomic.Int32 // sequences without a first token
	from   atomic.Pointer[time.Time]
}

func newWindow(seqs int, length time.Duration) *window {
	w := &window{length: length}
	w.left.Store(int32(seqs))
	return w
}

// first notes that a sequence has its first token.
func (w *window) first(at time.Time) {
	if w.left.Add(-1) == 0 {
		w.from.Store(&at)
	}
}

// over reports whether a sequence with these marks may end: the window has passed and
// contains a few of them.
func (w *window) over(marks []mark) bool {
	const few = 3
	from := w.from.Load()
	return from != nil && len(marks) > few && marks[len(marks)-few].at.After(*from) && marks[len(marks)-1].at.Sub(*from) >= w.length
}

// mark is the arrival time of tokens.
type mark struct {
	at     time.Time
	tokens int
}

// generate runs one sequence greedily to its end and returns the times of its tokens.
func (r *rig) generate(ctx context.Context, g generation) ([]mark, error) {
	req := engine.Request{
		ID: "bench-" + strconv.FormatUint(r.requests.Add(1), 10), Tokens: g.tokens,
		Stop: protocol.StopConditions{MaxTokens: g.output},
	}
	if g.given {
		req.Decide = func(int, int) engine.Decision { return engine.Decision{Remote: true} }
		req.Remote = func(res *engine.Reservation) {
			if g.gate != nil {
				if err := g.gate.pass(ctx); err != nil {
					res.Release(err)
					return
				}
			}
			res.Start("bench")
		}
	}
	stream, err := r.engine.Submit(ctx, req)
	if err != nil {
		return nil, err
	}
	defer stream.Cancel()
	marks := make([]mark, 0, g.output)
	for {
		out, err := stream.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return marks, nil
		case err != nil:
			return nil, err
		case out.Err != nil:
			return nil, out.Err
		}
		if len(out.Tokens) == 0 {
			continue
		}
		marks = append(marks, mark{time.Now(), len(out.Tokens)})
		if g.window == nil {
			continue
		}
		if len(marks) == 1 {
			g.window.first(marks[0].at)
		}
		if g.window.over(marks) {
			return marks, nil
		}
	}
}

// generateAll runs sequences concurrently; the first error ends all.
func (r *rig) generateAll(ctx context.Context, gs []generation) ([][]mark, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, errs := make([][]mark, len(gs)), make([]error, len(gs))
	var wg sync.WaitGroup
	for i, g := range gs {
		wg.Go(func() {
			if out[i], errs[i] = r.generate(ctx, g); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// idle waits until no sequence is left, including cancelled ones.
func (r *rig) idle(ctx context.Context) error {
	for {
		if _, total, err := r.engine.OpenSequences(ctx, 0); err != nil || total == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// errNoOverlap is returned when sequences did not run concurrently for long enough.
var errNoOverlap = errors.New("the sequences did not run at the same time")

// overlap returns how many tokens came while all sequences were decoding, and that time:
// from when the last sequence had its first token until the first had its last.
func overlap(seqs [][]mark) (tokens int, d time.Duration, err error) {
	var from, to time.Time
	for _, s := range seqs {
		if len(s) == 0 {
			return 0, 0, errNoOverlap
		}
		if first := s[0].at; first.After(from) {
			from = first
		}
		if last := s[len(s)-1].at; to.IsZero() || last.Before(to) {
			to = last
		}
	}
	if !to.After(from) {
		return 0, 0, errNoOverlap
	}
	for _, s := range seqs {
		for _, m := range s {
			if m.at.After(from) && !m.at.After(to) {
				tokens += m.tokens
			}
		}
	}
	return tokens, to.Sub(from), nil
}
