package gpu_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// deaf is a driver that leaves out one wait of a stream for another device's event.
type deaf struct {
	driver.Driver
	waits, skip int // the wait with this number, from 1 on
}

func (d *deaf) StreamWaitEvent(device int, stream, event uint64) error {
	if d.waits++; d.waits == d.skip {
		return nil
	}
	return d.Driver.StreamWaitEvent(device, stream, event)
}

// TestEveryWaitIsNeeded leaves out each of the waits of ranks for each other once: every time
// the pretended driver tells of accesses without an order.
func TestEveryWaitIsNeeded(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", Layers: 2, Hidden: 64, Heads: 6, KVHeads: 6, HeadDim: 16, FFN: 64, Vocab: 264, DType: "bf16", Seed: 2})
	for name, c := range map[string]struct {
		gpus, alone []int
		shots       int
		waits       int // in each of four sums, and for the logits
	}{
		"one-shot": {gpus: []int{0, 1, 2}, waits: 4*4 + 2},
		"two-shot": {gpus: []int{0, 1, 2}, shots: 1, waits: 4*8 + 2},
		"copies":   {gpus: []int{0, 1}, alone: []int{1}, waits: 4*2 + 1},
		"one GPU":  {gpus: []int{0, 0}, waits: 4*2 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := closed(t, newFakes(t, 1<<26, 3, c.alone...))
			d := &deaf{Driver: f}
			r := newRigOn(t, newGroup(t, d, c.gpus...), m, 4, gpu.WithTwoShot(gpu.Options{BlockSize: 16, MaxTokens: 8, MaxSeqs: 2, MaxContext: 64, BatchInvariant: true}, c.shots))
			step := func(skip int) (waits int, err error) {
				d.waits, d.skip = 0, skip
				// One token, all of whose values every rank reads.
				err = r.Step(t.Context(), []engine.BatchSeq{{Tokens: []uint32{1}, Blocks: table(0, 1), Logits: r.logits()}})
				return d.waits, errors.Join(err, f.Faults())
			}
			if waits, err := step(0); err != nil || waits != c.waits {
				t.Fatalf("%d waits, want %d: %v", waits, c.waits, err)
			}
			for skip := range c.waits {
				if _, err := step(skip + 1); err == nil || !strings.Contains(err.Error(), "neither waits for the other") {
					t.Errorf("without wait %d of %d: %v", skip+1, c.waits, err)
				}
				if _, err := step(0); err != nil {
					t.Fatalf("after step without wait %d: %v", skip+1, err)
				}
			}
		})
	}
}

// TestEveryEdgeOfAGraphIsNeeded is the same for decode steps, whose waits are recorded.
func TestEveryEdgeOfAGraphIsNeeded(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", Layers: 2, Hidden: 64, Heads: 6, KVHeads: 6, HeadDim: 16, FFN: 64, Vocab: 264, DType: "bf16", Seed: 2})
	f := closed(t, newFakes(t, 1<<26, 3))
	d := &deaf{Driver: f}
	w, err := newGroup(t, d, 0, 1, 2).Load(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	decode := func(skip int) (waits int, fault error) {
		b, err := w.NewBackend(t.Context(), gpu.Options{BlockSize: 16, MaxTokens: 8, MaxSeqs: 1, MaxContext: 64})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }() // of a capture that failed, work may be left, and is drained
		d.waits, d.skip = 0, skip
		pool, err := b.AllocKV(4)
		if waits = d.waits; err != nil {
			return waits, errors.Join(err, f.Faults())
		}
		defer func() { _ = pool.Close() }()
		// Twice, since the next replay must wait for this one, too.
		seq := []engine.BatchSeq{{Tokens: []uint32{1}, Blocks: table(0, 1), Logits: make([]float32, 264)}}
		return waits, errors.Join(b.Step(t.Context(), seq), b.Step(t.Context(), seq), f.Faults())
	}
	// Of one graph: to join the capture, in four sums, for the logits, and to be joined back.
	const begin, sums, end = 2, 4 * 4, 2
	if waits, err := decode(0); err != nil || waits != begin+sums+2+end {
		t.Fatalf("%d waits: %v", waits, err)
	}
	// Without the first ones kernels run at once, on what is no input yet; the last ones are
	// needed where the first rank has the whole vocabulary.
	for skip := begin; skip < begin+sums+2; skip++ {
		if _, err := decode(skip + 1); err == nil {
			t.Errorf("nothing is wrong without wait %d", skip+1)
		}
	}
	if err := f.Faults(); err != nil {
		t.Error(err)
	}
}
