package worker

import (
	"errors"
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// logprob is the formula.
func logprob(before []uint32, id uint32) float64 {
	logits := mock.Logits(before, vocab)
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	return float64(logits[id]) - math.Log(sum)
}

// Log probabilities are the same wherever the prompt is computed; those of the
// prompt itself are computed here.
func TestLogprobsOverWorkers(t *testing.T) {
	w := newWorld(t)
	w.start("worker-1", cluster.RolePrefill)
	d := w.start("worker-2", cluster.RoleDecode)
	eventually(t, "the decode worker sees the prefill worker", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	p := prompt(seeded(t), 70)
	width := 2
	for _, scored := range []bool{false, true} {
		req := request("plain", p, 10)
		req.Output.Logprobs = &width
		prefill := "worker-1"
		if scored {
			req.RequestID, req.Output.PromptLogprobs, prefill = "scored", &width, "local"
		}
		r := w.generate(t.Context(), "", req)
		check(t, r, p, 10)
		if r.timing.Prefill != prefill {
			t.Errorf("scored %v: prefilled by %s, want %s", scored, r.timing.Prefill, prefill)
		}
		all := append(append([]uint32{}, p...), r.tokens...)
		for i, v := range r.probs.Tokens {
			if want := logprob(all[:len(p)+i], all[len(p)+i]); math.Abs(float64(v)-want) > 1e-6*max(1, -want) {
				t.Errorf("token %d has %v, want %v", i, v, want)
			}
		}
		if len(r.probs.Tokens) != 10 || len(r.probs.TopIDs) != 20 || (r.prompt != nil) != scored {
			t.Fatalf("scored %v: %+v and %+v", scored, r.probs, r.prompt)
		}
		if !scored {
			continue
		}
		for i, v := range r.prompt.Tokens {
			if want := logprob(p[:i+1], p[i+1]); math.Abs(float64(v)-want) > 1e-6*max(1, -want) {
				t.Errorf("prompt token %d has %v, want %v", i+1, v, want)
			}
		}
		if !r.prompt.Valid(69) || r.usage.CachedTokens != 0 {
			t.Errorf("%d prompt tokens, %d of them cached", len(r.prompt.Tokens), r.usage.CachedTokens)
		}
	}
	t.Run("nothing allowed", func(t *testing.T) {
		req := request("none", p, 3)
		req.Sampling = protocol.SamplingOptions{AllowedTokenIDs: []uint32{4}, BadWords: [][]uint32{{4}}}
		var remote *requestplane.RemoteError
		if r := w.generate(t.Context(), "", req); !errors.As(r.err, &remote) || remote.Kind != requestplane.KindInvalidArgument {
			t.Errorf("got %v", r.err)
		}
	})
}
