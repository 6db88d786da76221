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

// Options configures a backend.
type Options struct {
	BlockSize  int // tokens in a KV block, a multiple of 16
	MaxContext int // positions; 0 and larger values mean the model's
	// KVDType is the type of keys and values: "bf16", also for "", or "int8" with one
	// scale for each token and head.
	KVDType string
	// MaxTokens and MaxSeqs bound the tokens and the sequences that go through the layers
	// together; 0 means 2048 and 256. Larger batches take several passes. They determine
	// the memory of activations and logits.
	MaxTokens, MaxSeqs int
	// BatchInvariant makes a token's bits independent of the rest of the batch and of how
	// a prompt was cut: all tokens go through the same kernels. Decoding is slower.
	BatchInvariant bool

	// twoShotBytes is the size of activations from which sums over ranks are two-shot, or
	// 0 for the default.
	twoShotBytes int
}

const (
	defaultMaxTokens = 2048
	defaultMaxSeqs   = 256
	// hang bounds the duration of a pass, far above any real one. Afterwards the device
	// counts as lost.
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
	blocks  int // number of blocks in the pool, 0 before AllocKV
	graphs  graphs
	pass    pass
}

var (
	_ engine.Backend = (*Backend)(nil)
	_ engine.Chooser = (*Backend)(nil)
)

// NewBackend makes a backend over shared weights and allocates everything but its block
// pool. It fails with device.ErrNoRoom and the sizes if that, and KV blocks for one
// sequence of the context's length, do not fit.
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

// Info describes the loaded model. It may be called at any time.
func (b *Backend) Info() engine.BackendInfo { return b.info }

// FitBlocks returns how many KV blocks a pool may have with the memory that is free now.
// If wish is above 0, it is wish. Otherwise it is a share (above 0, at most 1) of what
// fits, but at least one whole context. It fails with device.ErrNoRoom and the sizes if
// that does not fit.
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

// fit returns how many KV blocks fit; it fails if they are fewer than least.
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

// allocKV allocates the pool. It returns what it has allocated even if it fails.
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

// allocKV allocates and zeroes the rank's memory of all blocks.
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

// wait waits until the work in the lanes of all ranks has ended. Work on a device cannot
// be cancelled, so its memory must not be touched before.
func (b *Backend) wait(lane int) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), hang, errHang)
	defer cancel()
	ends := make([]*device.Event, len(b.ranks))
	for i, r := range b.ranks {
		ends[i] = r.lanes[lane].end
	}
	err := device.WaitAll(ctx, ends...)
	if err != nil && b.device.Err() == nil { // the work of one rank failed, that of others still runs
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

// Close frees the working memory. Weights, device and KV memory are not closed.
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

// KVMemory is one rank's memory of a block pool on a GPU.
type KVMemory struct {
	scope  *device.Scope
	region device.Region
	device int
}

// Bytes returns nil, because the host cannot address the memory.
func (m *KVMemory) Bytes() []byte { return nil }

// Device returns the index of the GPU. The memory is alone in an allocation, whose size
// is a multiple of 2 MiB.
func (m *KVMemory) Device() int { return m.device }

// Address returns where the memory begins on the device.
func (m *KVMemory) Address() uint64 { return m.region.Address }

// Size returns the number of bytes.
func (m *KVMemory) Size() int64 { return m.region.Bytes }

// Close frees the memory. No step and no peer may use it any more.
func (m *KVMemory) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return m.scope.Close(ctx)
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }
