package route

import (
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// device is an engine's backend that computes nothing and takes virtual time. It answers
// a request, whose number is the seed of its draws, with the tokens of the workload.
type device struct {
	mock.Timed
	timing   Timing
	requests []Request
	took     time.Duration // of the last step
	answered []int         // requests that got a token in it, with repetitions
	computed int           // tokens in chunks of prompts so far
}

// token returns the token that follows in the workload.
func (d *device) token(c *engine.Choice) uint32 {
	i := int(c.Sampling.Seed)
	d.answered = append(d.answered, i)
	r := &d.requests[i]
	return r.ids[(r.Tokens+c.Position)/BlockSize]
}

// compute counts what a step computes and returns how long it takes.
func (d *device) compute(entries []engine.BatchSeq) time.Duration {
	var b batch
	for _, e := range entries {
		if n := len(e.Tokens); n == 1 && e.Choice != nil && e.Choice.Position > 0 {
			b.decode++
			b.context += e.Start + 1
		} else {
			b.prompt += n
			b.pairs += float64(n) * (float64(e.Start) + float64(n)/2)
		}
	}
	d.computed += b.prompt
	d.took = d.timing.step(b)
	return d.took
}
