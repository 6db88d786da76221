package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
)

// reference applies the formulas of the options one after the other to the whole
// vocabulary, in float64, in the documented order. It returns the adjusted logits
// and the distribution that the token is drawn from.
func reference(logits []float32, q *sequence, o protocol.SamplingOptions) (adjusted, probs []float64) {
	l := make([]float64, len(logits))
	for i := range l {
		l[i] = float64(logits[i])
	}
	never := math.Inf(-1)
	if len(o.AllowedTokenIDs) > 0 {
		for i := range l {
			if !slices.Contains(o.AllowedTokenIDs, uint32(i)) {
				l[i] = never
			}
		}
	}
	prompt, output := q.tokens[:q.prompt], q.tokens[q.prompt:]
	for _, w := range o.BadWords {
		n := len(w) - 1
		if len(output) >= n && fmt.Sprint(output[len(output)-n:]) == fmt.Sprint(w[:n]) {
			l[w[n]] = never
		}
	}
	if len(output) < q.gen.stop.MinTokens {
		for _, id := range q.gen.stop.StopTokenIDs {
			l[id] = never
		}
	}
	for _, b := range o.LogitBias {
		l[b.Token] += float64(b.Bias)
	}
	for i := range l {
		id, n := uint32(i), 0.0
		for _, t := range output {
			if t == id {
				n++
			}
		}
		if o.RepetitionPenalty > 0 && (n > 0 || slices.Contains(prompt, id)) {
			if l[i] > 0 {
				l[i] /= float64(o.RepetitionPenalty)
			} else {
				l[i] *= float64(o.RepetitionPenalty)
			}
		}
		l[i] -= float64(o.FrequencyPenalty) * n
		if n > 0 {
			l[i] -= float64(o.PresencePenalty)
		}
	}
	return l, distribution(l, o)
}

// distribution applies temperature, min-p, top-k and top-p.
func distribution(logits []float64, o protocol.SamplingOptions) []float64 {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	p := make([]float64, len(logits))
	softmax := func() {
		var sum float64
		for i := range p {
			if p[i] >= 0 {
				p[i] = math.Exp((logits[i] - logits[order[0]]) / float64(o.Temperature))
				sum += p[i]
			}
		}
		for i := range p {
			p[i] /= sum
		}
	}
	const out = -1 // of the race; softmax leaves it alone but for its size
	softmax()
	for _, i := range order {
		if p[i] < float64(o.MinP)*p[order[0]] {
			p[i] = out
		}
	}
	if o.TopK > 0 {
		for _, i := range order[min(o.TopK, len(order)):] {
			p[i] = out
		}
	}
	softmax()
	if o.TopP > 0 && o.TopP < 1 {
		var acc float64
		for _, i := range order {
			if acc >= float64(o.TopP) {
				p[i] = out
			} else if p[i] > 0 {
				acc += p[i]
			}
		}
		softmax()
	}
	for i := range p {
		p[i] = max(p[i], 0)
	}
	return p
}

// randomCase makes a sequence in the middle of its output and options for it.
func randomCase(r *rand.Rand) (q *sequence, logits []float32, o protocol.SamplingOptions) {
	n := 3 + r.IntN(150)
	logits = make([]float32, n)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 4)
	}
	ids := func(n int) []uint32 {
		list := make([]uint32, n)
		for i := range list {
			list[i] = uint32(r.IntN(len(logits)))
		}
		return list
	}
	o = protocol.SamplingOptions{Temperature: 0.2 + 1.8*r.Float32(), Seed: r.Uint64()}
	maybe := func(f func()) {
		if r.IntN(2) == 0 {
			f()
		}
	}
	maybe(func() { o.TopK = r.IntN(n + 2) })
	maybe(func() { o.TopP = r.Float32() })
	maybe(func() { o.MinP = r.Float32() / 3 })
	maybe(func() { o.RepetitionPenalty = 0.5 + 1.5*r.Float32() })
	maybe(func() { o.FrequencyPenalty = 4*r.Float32() - 2 })
	maybe(func() { o.PresencePenalty = 4*r.Float32() - 2 })
	maybe(func() {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids(4)))) {
			o.LogitBias = append(o.LogitBias, protocol.TokenBias{Token: id, Bias: 20*r.Float32() - 10})
		}
	})
	maybe(func() { o.AllowedTokenIDs = ids(n) })
	prompt := ids(1 + r.IntN(20))
	output := ids(r.IntN(30))
	stop := protocol.StopConditions{MaxTokens: 100}
	maybe(func() { stop.MinTokens, stop.StopTokenIDs = r.IntN(40), ids(1) })
	maybe(func() {
		o.BadWords = append(o.BadWords, ids(1), ids(2))
		if len(output) > 1 { // one that really ends here
			o.BadWords = append(o.BadWords, append(slices.Clone(output[len(output)-2:]), uint32(r.IntN(n))))
		}
	})
	req := &Request{Tokens: append(slices.Clone(prompt), output...), Sampling: o, Stop: stop}
	q = &sequence{tokens: req.Tokens, prompt: len(prompt), given: len(prompt), gen: newGeneration(req, n)}
	return q, logits, o
}

func TestAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1)) // always the same: a share can lie on the edge of top-p
	var s sampler
	for range 3000 {
		q, logits, o := randomCase(r)
		want, probs := reference(logits, q, o)
		if err := q.gen.adjust(logits, q, q.output() < q.gen.stop.MinTokens); err != nil {
			t.Fatal(err)
		}
		for i := range logits {
			if w := want[i]; math.Abs(float64(logits[i])-w) > 2e-6*max(1, math.Abs(w)) && !(math.IsInf(w, -1) && logits[i] == negInf) {
				t.Fatalf("%+v: logit %d is %v, want %v", o, i, logits[i], w)
			}
		}
		best, ok := argmax(logits)
		if !ok {
			if !nothingLeft(logits) {
				t.Fatalf("%+v: no best of %v", o, logits)
			}
			continue
		}
		c, sum := s.filter(logits, logits[best], &o)
		got := make([]float64, len(logits))
		for _, x := range c {
			got[x.id] = float64(x.p) / sum
		}
		for i := range got {
			if math.Abs(got[i]-probs[i]) > 1e-5 {
				t.Fatalf("%+v: token %d has probability %v, want %v", o, i, got[i], probs[i])
			}
		}
	}
}

// What draw returns comes from that distribution, the log probability from the
// logits before all of it.
func TestDrawLogprobs(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2)) // always the same: a share can lie on the edge of top-p
	var s sampler
	for range 1000 {
		q, logits, o := randomCase(r)
		n := r.IntN(protocol.MaxLogprobs + 1)
		q.gen.logprobs, q.gen.logits = &n, slices.Clone(logits)
		_, probs := reference(logits, q, o)
		token, lp, err := s.draw(q, len(logits))
		if err != nil {
			if err != ErrNothingAllowed || !nothingLeft(q.gen.logits) {
				t.Fatal(err)
			}
			continue
		}
		if probs[token] <= 0 {
			t.Fatalf("%+v: drew %d, which is impossible", o, token)
		}
		checkLogprobs(t, lp, logits, token, n)
	}
}

// checkLogprobs compares the log probabilities of one token with their formula.
func checkLogprobs(t *testing.T, lp *protocol.Logprobs, logits []float32, token uint32, n int) {
	t.Helper()
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	want := func(id uint32) float32 { return float32(float64(logits[id]) - math.Log(sum)) }
	near := func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*max(1, math.Abs(float64(b))) }
	n = min(n, len(logits))
	if !lp.Valid(1) || lp.Width != n || !near(lp.Tokens[0], want(token)) {
		t.Fatalf("%+v of token %d, want %v and %d others", lp, token, want(token), n)
	}
	order := make([]uint32, len(logits))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(logits[b], logits[a]) })
	ids, values := lp.Top(0)
	if !slices.Equal(ids, order[:n]) {
		t.Fatalf("most likely %v, want %v", ids, order[:n])
	}
	for i, id := range ids {
		if !near(values[i], want(id)) {
			t.Fatalf("token %d has %v, want %v", id, values[i], want(id))
		}
	}
}
