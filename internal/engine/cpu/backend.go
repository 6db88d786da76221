package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

// Options configures a backend.
type Options struct {
	BlockSize  int    // tokens in a KV block
	MaxContext int    // positions; 0 and larger values mean the model's
	KVDType    string // f32 (default), bf16, int8, or auto, see [KVAuto]
	// TensorParallel is the number of ranks, 0 for 1; it divides query heads and KV heads.
	TensorParallel int
}

// Backend computes one worker's steps. Info may be called at any time; the other
// calls must not overlap.
type Backend struct {
	weights *Weights
	device  *Device
	info    engine.BackendInfo
	ranks   ranks
	pairs   bool // attention is computed in pairs, see attention_pairs.go
	ropes   [numRopes]rope
	turn    *turn
	pass    pass
	step    step
	busy    time.Duration // of the last step, without waiting for its turn
	closed  bool
}

var (
	_ engine.Backend   = (*Backend)(nil)
	_ engine.BusyTimer = (*Backend)(nil)
)

// NewBackend makes a backend over shared weights.
func (w *Weights) NewBackend(opts Options) (*Backend, error) {
	c := w.config
	if opts.BlockSize < 1 {
		return nil, fmt.Errorf("new backend: block size %d is below 1", opts.BlockSize)
	}
	kvType, err := KVDType(w.model, opts.KVDType)
	if err != nil {
		return nil, fmt.Errorf("new backend: %w", err)
	}
	tensorParallel := opts.TensorParallel
	if tensorParallel == 0 {
		tensorParallel = 1
	}
	if err := engine.CheckTensorParallel(tensorParallel, c.Heads, c.KVHeads); err != nil {
		return nil, fmt.Errorf("new backend: %w", err)
	}
	maxContext := c.MaxContext
	if opts.MaxContext > 0 {
		maxContext = min(maxContext, opts.MaxContext)
	}
	b := &Backend{
		weights: w,
		device:  w.device,
		turn:    newTurn(),
		info: engine.BackendInfo{
			Device:         w.device.id,
			DeviceName:     w.device.Name(),
			VocabSize:      c.Vocab,
			TokenLimit:     w.model.TokenLimit(),
			MaxContext:     maxContext,
			Embedding:      c.Hidden,
			Grids:          c.RoPE.Sections != [3]int{},
			Mutual:         c.Vision != nil && c.Vision.Mutual,
			TensorParallel: tensorParallel,
			KV: kvlayout.Shape{
				Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
				BlockSize: opts.BlockSize, DType: kvType,
			},
		},
	}
	b.ropes[globalRope] = newRope(c.RoPE, c.Rotary(), maxContext)
	if c.LocalRoPE != nil {
		b.ropes[localRope] = newRope(*c.LocalRoPE, c.Rotary(), maxContext)
	}
	b.pairs = b.device.attentionPairs(kvTypes[kvType])
	b.pass.level, b.pass.pairs = b.device.level, b.pairs
	b.step.bind(b)
	return b, nil
}

// Info describes the loaded model. It may be called at any time.
func (b *Backend) Info() engine.BackendInfo { return b.info }

// AllocKV maps zeroed memory for n blocks, off the Go heap and page-aligned.
func (b *Backend) AllocKV(n int) (engine.KVPool, error) {
	if b.closed {
		return nil, fmt.Errorf("allocate KV blocks: %w", ErrClosed)
	}
	if len(b.ranks) > 0 {
		return nil, errors.New("allocate KV blocks: the backend has its pool already")
	}
	shape := b.info.KV.Rank(b.info.TensorParallel)
	var pool engine.KVPool
	var rs ranks
	for range b.info.TensorParallel {
		m, err := newMemory(n, shape.BlockBytes(), b.device.node)
		if err != nil {
			return nil, fmt.Errorf("allocate KV blocks: %w", errors.Join(err, pool.Close()))
		}
		pool, rs = append(pool, m), append(rs, newCache(shape, n, m.Bytes()))
	}
	b.ranks = rs
	return pool, nil
}

// Step computes a batch. It returns the context's cause, [engine.ErrBatch], [ErrMemory]
// or [ErrClosed].
func (b *Backend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	if err := b.compute(ctx, batch); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	return nil
}

func (b *Backend) compute(ctx context.Context, batch []engine.BatchSeq) error {
	if b.closed {
		return ErrClosed
	}
	if len(b.ranks) == 0 {
		return fmt.Errorf("%w: the block pool is not allocated", engine.ErrBatch)
	}
	if err := engine.CheckBatch(batch, b.info, b.ranks[0].blocks); err != nil {
		return err
	}
	b.turn.prefill = hasPrefill(batch)
	turns := &b.device.turns
	if err := turns.acquire(ctx, b.turn, false); err != nil {
		return err
	}
	defer turns.release(b.turn)
	b.device.pool.enter()
	defer b.device.pool.leave()
	// The calling goroutine reads mapped weights, too; see pool.exec.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	begin := time.Now()
	err := b.step.run(ctx, batch)
	b.busy = time.Since(begin) - b.step.waited
	return err
}

// Busy returns how long the last step computed, from its first turn on, without the turns
// of other backends.
func (b *Backend) Busy() time.Duration { return b.busy }

func hasPrefill(batch []engine.BatchSeq) bool {
	for i := range batch {
		if len(batch[i].Tokens) > 1 {
			return true
		}
	}
	return false
}

// Close drops the working memory. Weights, device and KV memory are not closed.
func (b *Backend) Close() error {
	b.closed = true
	b.pass = pass{}
	return nil
}
