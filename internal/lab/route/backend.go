package route

import (
	"context"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/protocol"
)

// device is an engine's backend that computes nothing and takes virtual time. It answers
// a request, whose number is the seed of its draws, with the tokens of the workload.
type device struct {
	timing   Timing
	requests []Request
	began    func()        // a step begins
	took     time.Duration // of the last step
	answered []int         // requests that got a token in it, with repetitions
	computed int           // tokens in chunks of prompts so far
}

func (d *device) Info() engine.BackendInfo {
	return engine.BackendInfo{
		VocabSize: math.MaxUint32, TokenLimit: math.MaxUint32, MaxContext: math.MaxInt32, TensorParallel: 1,
		KV: kvlayout.Shape{BlockSize: BlockSize},
	}
}

func (d *device) AllocKV(int) (engine.KVPool, error) { return nil, nil }
func (d *device) Close() error                       { return nil }

// Chooses makes the device a Chooser, so that there are no logits.
func (d *device) Chooses(*protocol.SamplingOptions) bool { return true }

func (d *device) Step(_ context.Context, entries []engine.BatchSeq) error {
	d.began()
	d.answered = d.answered[:0]
	var b batch
	for _, e := range entries {
		c := e.Choice
		if n := len(e.Tokens); n == 1 && c != nil && c.Position > 0 {
			b.decode++
			b.context += e.Start + 1
		} else {
			b.prompt += n
			b.pairs += float64(n) * (float64(e.Start) + float64(n)/2)
		}
		if c != nil {
			i := int(c.Sampling.Seed)
			r := &d.requests[i]
			c.Token = r.ids[(r.Tokens+c.Position)/BlockSize]
			d.answered = append(d.answered, i)
		}
	}
	d.computed += b.prompt
	d.took = d.timing.step(b)
	return nil
}
