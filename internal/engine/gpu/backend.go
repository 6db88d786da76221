package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

// Options of a backend.
type Options struct {
	BlockSize  int // tokens in a KV block, a multiple of 16
	MaxContext int // positions; 0 and values above the model's stand for the model's
	// KVDType is the type of keys and values: "bf16", which "" stands for, or "int8", with one
	// scale for each token and head.
	KVDType string
	// MaxTokens and MaxSeqs bound the tokens and the sequences that go through the layers
	// together, 0 for 2048 and 256; larger batches take several passes. The memory of
	// activations and logits is for so many.
	MaxTokens, MaxSeqs int
	// BatchInvariant makes a token's bits independent of what else a step computes, and of
	// how a prompt was cut: all tokens go through the same kernels. Decoding is slower.
	BatchInvariant bool

	// twoShotBytes is from how many bytes of activations on sums over ranks are two-shot, 0 for
	// what is best.
	twoShotBytes int
}

const (
	defaultMaxTokens = 2048
	defaultMaxSeqs   = 256
	// hang is how long a pass may take: far more than any does. Then the device is given up.
	hang = 2 * time.Minute
)

var errHang = fmt.Errorf("a step has not ended after %s", hang)

// Backend computes one worker's steps. Info may be called at any time; the other calls
// must not overlap.
type Backend struct {
	weights *Weights
	device  *Device
	info    engine.BackendInfo
	options Options
	ranks   []*rank
	blocks  int // of the pool, 0 before AllocKV
	graphs  graphs
	pass    pass
}

var (
	_ engine.Backend = (*Backend)(nil)
	_ engine.Chooser = (*Backend)(nil)
)

// NewBackend makes a backend over shared weights, and takes the memory of everything but
// its block pool. It fails with device.ErrNoRoom and the figures where that, and KV blocks
// for one sequence as long as the context, do not fit.
func (w *Weights) NewBackend(ctx context.Context, o Options) (*Backend, error) {
	b := &Backend{weights: w, device: w.device, options: o}
	if err := b.open(); err != nil {
		return nil, fmt.Errorf("new backend on %s: %w", w.device.id, errors.Join(err, b.close(context.WithoutCancel(ctx))))
	}
	return b, nil
}

func (b *Backend) open() error {
	c, o := b.weights.config, &b.options
	if o.BlockSize < 16 || o.BlockSize%16 != 0 {
		return fmt.Errorf("a block size of %d tokens is not a positive multiple of 16", o.BlockSize)
	}
	for _, v := range []struct {
		name     string
		value    *int
		standard int
	}{{"max tokens", &o.MaxTokens, defaultMaxTokens}, {"max sequences", &o.MaxSeqs, defaultMaxSeqs}, {"max context", &o.MaxContext, c.MaxContext}} {
		if *v.value < 0 {
			return fmt.Errorf("%s: %d is negative", v.name, *v.value)
		}
		if *v.value == 0 {
			*v.value = v.standard
		}
	}
	if o.KVDType = cmp.Or(o.KVDType, "bf16"); o.KVDType != "bf16" && o.KVDType != "int8" {
		return fmt.Errorf("%w: KV of %s; kernels know bf16 and int8", ErrUnsupported, o.KVDType)
	}
	if most := kernels.MaxHeadDim(o.KVDType); c.HeadDim > most {
		return fmt.Errorf("%w: heads have %d dimensions, kernels know up to %d with KV of %s; keep bf16", ErrUnsupported, c.HeadDim, most, o.KVDType)
	}
	o.MaxContext = min(o.MaxContext, c.MaxContext)
	o.MaxTokens = max(o.MaxTokens, o.MaxSeqs)
	b.info = engine.BackendInfo{
		Device: b.device.id, DeviceName: b.device.Name(), VocabSize: c.Vocab, TokenLimit: b.weights.model.TokenLimit(),
		MaxContext: o.MaxContext, TensorParallel: len(b.weights.shards),
		KV:          kvlayout.Shape{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, BlockSize: o.BlockSize, DType: o.KVDType},
		BatchTokens: o.MaxTokens, Seqs: o.MaxSeqs,
	}
	for _, s := range b.weights.shards {
		if err := b.openRank(s); err != nil {
			return err
		}
	}
	return b.allocate()
}

// Info describes the loaded model.
func (b *Backend) Info() engine.BackendInfo { return b.info }

// FitBlocks is how many KV blocks the memory has room for that may be taken now: so many,
// or with 0 a share of what is left, above 0 and at most 1, which is at least a whole
// context. Where that does not fit the error is device.ErrNoRoom and has the figures.
func (b *Backend) FitBlocks(wish int, share float64) (int, error) {
	context := blocksOf(b.info.MaxContext, b.info.KV.BlockSize)
	n, err := b.fit(cmp.Or(wish, context))
	switch {
	case err != nil:
		return 0, fmt.Errorf("KV blocks on %s: %w", b.device.id, err)
	case wish > 0:
		return wish, nil
	}
	return max(int(share*float64(n)), context), nil
}

// fit is how many KV blocks there is room for, at least so many.
func (b *Backend) fit(least int) (int, error) {
	return b.device.fit(func(rank int) device.Plan {
		return device.Plan{BlockBytes: b.ranks[rank].shape.BlockBytes(), MinBlocks: least}
	})
}

// AllocKV allocates n blocks, zeroed, and records the graphs of decode steps.
func (b *Backend) AllocKV(n int) (engine.KVPool, error) {
	pool, err := b.allocKV(n)
	if err != nil {
		return nil, fmt.Errorf("allocate %d KV blocks on %s: %w", n, b.device.id, errors.Join(err, pool.Close()))
	}
	return pool, nil
}

// allocKV returns what it has allocated, also when it fails.
func (b *Backend) allocKV(n int) (pool engine.KVPool, err error) {
	if b.blocks != 0 {
		return nil, errors.New("the backend has its pool already")
	}
	b.device.planning.Lock()
	defer b.device.planning.Unlock()
	if _, err := b.fit(n); err != nil {
		return nil, err
	}
	b.blocks = n
	defer func() {
		if err != nil {
			b.blocks = 0
		}
	}()
	for _, r := range b.ranks {
		m, err := r.allocKV(n)
		if m != nil {
			pool = append(pool, m)
		}
		if err != nil {
			return pool, err
		}
	}
	if err := errors.Join(b.record(), b.prepare()); err != nil {
		return pool, err
	}
	for _, r := range b.ranks {
		r.scope.Seal()
	}
	return pool, b.wait(normal)
}

// allocKV takes the rank's memory of all blocks, and has it zeroed.
func (r *rank) allocKV(n int) (*KVMemory, error) {
	scope, err := r.unit.dev.NewScope()
	if err != nil {
		return nil, err
	}
	m := &KVMemory{scope: scope, device: r.unit.dev.Index()}
	arena, err := scope.Arena(device.KV, int64(n)*r.shape.BlockBytes())
	if err != nil {
		return m, err
	}
	scope.Seal()
	m.region = arena.All()
	r.kv = m.region.Address
	l := &r.lanes[normal]
	return m, errors.Join(l.stream.Set(m.region, 0), l.stream.Record(l.end))
}

// wait waits until what was put into the lanes of all ranks has ended. What a device computes
// cannot be called back: nobody may touch its memory before.
func (b *Backend) wait(lane int) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), hang, errHang)
	defer cancel()
	ends := make([]*device.Event, len(b.ranks))
	for i, r := range b.ranks {
		ends[i] = r.lanes[lane].end
	}
	err := device.WaitAll(ctx, ends...)
	if err != nil && b.device.Err() == nil { // a work failed, and others go on
		for _, e := range ends {
			err = errors.Join(err, e.Wait(ctx))
		}
	}
	if ctx.Err() != nil {
		b.device.abandon(context.Cause(ctx))
		return b.device.Err()
	}
	b.device.spread()
	return err
}

// Close frees the working memory. Weights, device and KV memory stay.
func (b *Backend) Close() error { return b.close(context.Background()) }

func (b *Backend) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	var errs []error
	for _, r := range b.ranks {
		errs = append(errs, r.scope.Close(ctx))
	}
	return errors.Join(errs...)
}

// KVMemory is the memory of a block pool on a GPU: that of one rank.
type KVMemory struct {
	scope  *device.Scope
	region device.Region
	device int
}

// Bytes returns nil: the host cannot address the memory.
func (m *KVMemory) Bytes() []byte { return nil }

// Device is the index of the GPU, Address where the memory begins on it, and Size its
// bytes; it is alone in an allocation of whole multiples of 2 MiB.
func (m *KVMemory) Device() int { return m.device }

// Address is where the memory begins on the device.
func (m *KVMemory) Address() uint64 { return m.region.Address }

// Size is the number of bytes.
func (m *KVMemory) Size() int64 { return m.region.Bytes }

// Close frees the memory, which no step and no peer may use.
func (m *KVMemory) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return m.scope.Close(ctx)
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }
