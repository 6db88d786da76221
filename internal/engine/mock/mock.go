// Package mock is an engine backend whose arithmetic is a hash: the next token
// depends on every token id and position stored in the KV blocks, read back from
// the blocks themselves. A lost, misplaced or overwritten KV value therefore
// changes the output, and [Continue] says without any cache what the output must
// be. Steps can be given a duration, so that schedules of real models can be
// simulated on a laptop.
//
// A Backend is used by one engine at a time; Continue is pure.
package mock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// Options of a Backend. Zero fields have defaults.
type Options struct {
	Device     string // "cpu:0"
	BlockSize  int    // 64
	VocabSize  int    // 300
	MaxContext int    // 8192
	KVDType    string // "f32": how large blocks are, and what they say they hold
	// KVHeads is the number of KV heads, 1; each has all that outputs depend on, written
	// differently, so that one that is lost or in another's place changes them.
	KVHeads int
	// TensorParallel is the number of ranks that share the heads, 1.
	TensorParallel int
	// Grids: rows of images are placed in grids, and what a token counts for depends on its
	// positions.
	Grids bool
	// StepTime returns the duration of a step with so many prompt tokens and so many
	// decoding sequences; nil means no time.
	StepTime func(promptTokens, decodes int) time.Duration
	// Work is StepTime of a batch in full; it wins over StepTime. It also says how long
	// the step waits before, for a device that others use.
	Work func(batch []engine.BatchSeq) (busy, wait time.Duration)
	// Next, when set, chooses what comes most likely after a sequence of tokens, as a
	// model does that repeats itself.
	Next func(tokens []uint32) uint32
	// Mutual says that positions of an image attend to each other, and refuses steps that
	// compute some of them without the later ones.
	Mutual bool
	// Fail, when set, is asked before each step whether it fails.
	Fail func() error
}

// Backend implements engine.Backend.
type Backend struct {
	opts Options
	rank kvlayout.Shape // what each rank has of a block
	mem  engine.KVPool
	busy time.Duration // of the last step
}

// New returns a backend.
func New(o Options) *Backend {
	if o.Device == "" {
		o.Device = "cpu:0"
	}
	if o.KVDType == "" {
		o.KVDType = "f32"
	}
	if o.BlockSize == 0 {
		o.BlockSize = 64
	}
	if o.VocabSize == 0 {
		o.VocabSize = 300
	}
	if o.MaxContext == 0 {
		o.MaxContext = 8192
	}
	o.KVHeads, o.TensorParallel = max(o.KVHeads, 1), max(o.TensorParallel, 1)
	b := &Backend{opts: o}
	b.rank = b.Info().KV.Rank(o.TensorParallel)
	return b
}

// Info implements engine.Backend.
func (b *Backend) Info() engine.BackendInfo {
	return engine.BackendInfo{
		Device: b.opts.Device, DeviceName: "mock", VocabSize: b.opts.VocabSize,
		TokenLimit: b.opts.VocabSize, MaxContext: b.opts.MaxContext, Embedding: EmbeddingSize, Grids: b.opts.Grids, Mutual: b.opts.Mutual, TensorParallel: b.opts.TensorParallel,
		KV: kvlayout.Shape{Layers: 1, KVHeads: b.opts.KVHeads, HeadDim: 2, BlockSize: b.opts.BlockSize, DType: b.opts.KVDType},
	}
}

// AllocKV implements engine.Backend.
func (b *Backend) AllocKV(n int) (engine.KVPool, error) {
	if err := engine.CheckTensorParallel(b.opts.TensorParallel, b.opts.KVHeads, b.opts.KVHeads); err != nil {
		return nil, fmt.Errorf("allocate KV blocks: %w", err)
	}
	b.mem = nil
	for range b.opts.TensorParallel {
		m, err := sharedmem.New("mock-kv-pool", n*int(b.rank.BlockBytes()))
		if err != nil {
			return nil, fmt.Errorf("allocate KV blocks: %w", errors.Join(err, b.mem.Close()))
		}
		b.mem = append(b.mem, m)
	}
	return b.mem, nil
}

// Step implements engine.Backend.
func (b *Backend) Step(ctx context.Context, batch []engine.BatchSeq) error {
	if b.opts.Fail != nil {
		if err := b.opts.Fail(); err != nil {
			return err
		}
	}
	if b.opts.Mutual {
		if err := b.checkMutual(batch); err != nil {
			return err
		}
	}
	begin := time.Now()
	waited, err := b.wait(ctx, batch)
	if err != nil {
		return err
	}
	defer func() { b.busy = time.Since(begin) - waited }()
	for _, s := range batch {
		for i, t := range s.Tokens {
			if s.Rows != nil && s.Rows[i] != nil {
				t = TokenOf(s.Rows[i])
			}
			t = Placed(t, s.Start+i, s.Positions.At(s.Start+i))
			if err := b.store(s.Blocks, s.Start+i, t); err != nil {
				return err
			}
		}
		if s.Logits != nil {
			fill(s.Logits, b.fold(s.Blocks, s.Start+len(s.Tokens)))
			if b.opts.Next != nil {
				s.Logits[b.opts.Next(b.tokens(s.Blocks, s.Start+len(s.Tokens)))] += preferred
			}
		}
	}
	return nil
}

// checkMutual returns an error unless every embedding comes with the whole of its image.
func (b *Backend) checkMutual(batch []engine.BatchSeq) error {
	blocks := len(b.mem[0].Bytes()) / int(b.rank.BlockBytes())
	if err := engine.CheckBatch(batch, b.Info(), blocks); err != nil {
		return err
	}
	for _, s := range batch {
		for i, row := range s.Rows {
			within := func(m engine.Span) bool { return m.Start <= s.Start+i && s.Start+i < m.End }
			if row != nil && !slices.ContainsFunc(s.Mutual, within) {
				return fmt.Errorf("%w: position %d belongs to no image", engine.ErrBatch, s.Start+i)
			}
		}
	}
	return nil
}

// wait takes the time of the step. It returns how much of that is no computing.
func (b *Backend) wait(ctx context.Context, batch []engine.BatchSeq) (waited time.Duration, err error) {
	var busy time.Duration
	switch {
	case b.opts.Work != nil:
		busy, waited = b.opts.Work(batch)
	case b.opts.StepTime != nil:
		prompt, decodes := 0, 0
		for _, s := range batch {
			if len(s.Tokens) == 1 {
				decodes++
			} else {
				prompt += len(s.Tokens)
			}
		}
		busy = b.opts.StepTime(prompt, decodes)
	default:
		return 0, nil
	}
	t := time.NewTimer(busy + waited)
	defer t.Stop()
	select {
	case <-t.C:
		return waited, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Busy implements engine.BusyTimer.
func (b *Backend) Busy() time.Duration { return b.busy }

// slot is the memory of one position in one head: its token and its position, as two
// u32 in V.
func (b *Backend) slot(table []int32, pos, head int) ([]byte, error) {
	kv := &b.rank
	if pos/kv.BlockSize >= len(table) {
		return nil, fmt.Errorf("position %d is beyond a block table of %d blocks", pos, len(table))
	}
	mem, block := b.mem[head/kv.KVHeads].Bytes(), int64(table[pos/kv.BlockSize])
	at := block*kv.BlockBytes() + int64(kv.Region(0, 1, head%kv.KVHeads)+pos%kv.BlockSize*kv.RowBytes())
	if at < 0 || at+8 > int64(len(mem)) {
		return nil, fmt.Errorf("block %d is outside the pool", block)
	}
	return mem[at : at+8], nil
}

// disguise tells what one head holds from what another one does.
func disguise(head int) uint32 { return uint32(head) * 0x9e3779b9 }

func (b *Backend) store(table []int32, pos int, token uint32) error {
	for head := range b.opts.KVHeads {
		m, err := b.slot(table, pos, head)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(m, token^disguise(head))
		binary.LittleEndian.PutUint32(m[4:], uint32(pos)^disguise(head))
	}
	return nil
}

// read returns a head's token and position at a position; they are the same for all heads.
func (b *Backend) read(table []int32, pos, head int) (token, position uint32, err error) {
	m, err := b.slot(table, pos, head)
	if err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint32(m) ^ disguise(head), binary.LittleEndian.Uint32(m[4:]) ^ disguise(head), nil
}

// preferred is added to the logit of Options.Next. Logits are below 16, so greedy sampling
// picks that token, but sampling does not always draw it.
const preferred = 16

// tokens reads the first n tokens of a sequence back from the blocks.
func (b *Backend) tokens(table []int32, n int) []uint32 {
	tokens := make([]uint32, 0, n)
	for pos := range n {
		token, _, err := b.read(table, pos, 0)
		if err != nil {
			return tokens
		}
		tokens = append(tokens, token)
	}
	return tokens
}

// fold hashes what the blocks hold for the first n positions: that of the first head,
// and of others where it is not the same.
func (b *Backend) fold(table []int32, n int) uint64 {
	h := foldStart
	for pos := range n {
		var first, at uint32
		for head := range b.opts.KVHeads {
			token, position, err := b.read(table, pos, head)
			switch {
			case err != nil:
				return 0
			case head == 0:
				first, at = token, position
			case token == first && position == at:
				continue
			}
			h = foldNext(h, token, position)
		}
	}
	return h
}

// Close implements engine.Backend.
func (b *Backend) Close() error { return nil }

// EmbeddingSize is the number of values of an embedding.
const EmbeddingSize = 4

// TokenOf returns the token, outside of any vocabulary, for which an embedding counts.
func TokenOf(row []float32) uint32 {
	h := foldStart
	for i, v := range row {
		h = foldNext(h, math.Float32bits(v), uint32(i))
	}
	return uint32(h) | 1<<31
}

const foldStart uint64 = 0x9e3779b97f4a7c15

func foldNext(h uint64, token, pos uint32) uint64 {
	h ^= uint64(token)<<32 | uint64(pos)
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// fill derives logits from a hash.
func fill(logits []float32, h uint64) {
	for i := range logits {
		h ^= h << 13
		h ^= h >> 7
		h ^= h << 17
		logits[i] = float32(h>>40) / (1 << 20)
	}
}

// Logits returns the logits that follow tokens, computed without any cache.
func Logits(tokens []uint32, vocab int) []float32 {
	h := foldStart
	for i, t := range tokens {
		h = foldNext(h, t, uint32(i))
	}
	logits := make([]float32, vocab)
	fill(logits, h)
	return logits
}

// Continue returns the n tokens that follow prompt under greedy sampling, computed
// without any cache. It stops early after a token of stop, which is not returned.
func Continue(prompt []uint32, n, vocab int, stop ...uint32) []uint32 {
	h := foldStart
	for i, t := range prompt {
		h = foldNext(h, t, uint32(i))
	}
	logits := make([]float32, vocab)
	var out []uint32
	for len(out) < n {
		fill(logits, h)
		best := 0
		for i, l := range logits {
			if l > logits[best] {
				best = i
			}
		}
		for _, s := range stop {
			if s == uint32(best) {
				return out
			}
		}
		out = append(out, uint32(best))
		h = foldNext(h, uint32(best), uint32(len(prompt)+len(out)-1))
	}
	return out
}

// Placed returns the token for which one at a place of its sequence counts that rotates by
// other positions.
func Placed(token uint32, place int, at [3]int) uint32 {
	if at == [3]int{place, place, place} {
		return token
	}
	h := foldNext(foldStart, token, uint32(at[0]))
	return uint32(foldNext(h, uint32(at[1]), uint32(at[2]))) | 1<<31
}
