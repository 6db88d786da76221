package engine

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
)

func draw(t *testing.T, logits []float32, o protocol.SamplingOptions, pos int) uint32 {
	t.Helper()
	var s sampler
	id, err := s.sample(logits, len(logits), o, pos)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The share of each token over many positions must be its probability after the
// filters. 4.5 standard deviations: a wrong formula is off by far more, a right one
// fails less than once in 100,000 runs, and the seeds are fixed anyway.
func TestSampleDistribution(t *testing.T) {
	logits := []float32{1, 3, 2, 0, -2, 3}
	prob := func(temp float64, keep ...int) []float64 {
		p := make([]float64, len(logits))
		var sum float64
		for _, i := range keep {
			p[i] = math.Exp(float64(logits[i]) / temp)
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	for _, tc := range []struct {
		name string
		o    protocol.SamplingOptions
		want []float64
	}{
		{"plain", protocol.SamplingOptions{Temperature: 1}, prob(1, 0, 1, 2, 3, 4, 5)},
		{"cold", protocol.SamplingOptions{Temperature: 0.5}, prob(0.5, 0, 1, 2, 3, 4, 5)},
		{"hot", protocol.SamplingOptions{Temperature: 1.7}, prob(1.7, 0, 1, 2, 3, 4, 5)},
		{"top_k 3", protocol.SamplingOptions{Temperature: 1, TopK: 3}, prob(1, 1, 5, 2)},
		{"top_k ties take low ids", protocol.SamplingOptions{Temperature: 1, TopK: 1}, prob(1, 1)},
		// shares: 1 and 5 38.9 % each, 2 14.3 %, 0 5.3 %, 3 1.9 %, 4 0.3 %
		{"top_p 0.5", protocol.SamplingOptions{Temperature: 1, TopP: 0.5}, prob(1, 1, 5)},
		{"top_p 0.9", protocol.SamplingOptions{Temperature: 1, TopP: 0.9}, prob(1, 1, 5, 2)},
		{"top_p tiny", protocol.SamplingOptions{Temperature: 1, TopP: 1e-9}, prob(1, 1)},
		{"min_p 0.3", protocol.SamplingOptions{Temperature: 1, MinP: 0.3}, prob(1, 1, 5, 2)},
		{"min_p after temperature", protocol.SamplingOptions{Temperature: 0.5, MinP: 0.3}, prob(0.5, 1, 5)},
		// of these three 42.2, 42.2 and 15.5 %
		{"top_p of what min_p leaves", protocol.SamplingOptions{Temperature: 1, MinP: 0.3, TopP: 0.84}, prob(1, 1, 5)},
		{"top_k then top_p", protocol.SamplingOptions{Temperature: 1, TopK: 3, TopP: 0.5}, prob(1, 1, 5)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const n = 20000
			tc.o.Seed = 42
			got := make([]int, len(logits))
			for pos := range n {
				got[draw(t, logits, tc.o, pos)]++
			}
			for i, w := range tc.want {
				share := float64(got[i]) / n
				if tol := 4.5 * math.Sqrt(w*(1-w)/n); math.Abs(share-w) > tol {
					t.Errorf("token %d: share %.4f, want %.4f ± %.4f", i, share, w, tol)
				}
			}
		})
	}
}

func TestSampleDependsOnSeedAndPositionOnly(t *testing.T) {
	logits := make([]float32, 1000)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range logits {
		logits[i] = float32(r.NormFloat64())
	}
	o := protocol.SamplingOptions{Temperature: 1, Seed: 9}
	var s sampler
	for _, other := range []protocol.SamplingOptions{{Temperature: 0.3, Seed: 1}, {TopK: 3, Temperature: 2}} {
		if _, err := s.sample(logits, 1000, other, 5); err != nil { // leave traces in the scratch space
			t.Fatal(err)
		}
	}
	a, err := s.sample(logits, 1000, o, 17)
	if err != nil {
		t.Fatal(err)
	}
	if b := draw(t, logits, o, 17); a != b {
		t.Errorf("used sampler drew %d, fresh one %d", a, b)
	}
	same := 0
	for pos := range 100 {
		x, y := o, o
		y.Seed++
		if draw(t, logits, x, pos) == draw(t, logits, y, pos) {
			same++
		}
	}
	if same > 20 {
		t.Errorf("another seed draws the same token in %d of 100 positions", same)
	}
}

func TestGreedy(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tc := range []struct {
		name   string
		logits []float32
		limit  int
		want   uint32
		err    error
	}{
		{"largest", []float32{1, 5, 2}, 3, 1, nil},
		{"lowest id among equals", []float32{5, 1, 5}, 3, 0, nil},
		{"padding is masked", []float32{1, 2, 9}, 2, 1, nil},
		{"negative", []float32{-3, -1, -2}, 3, 1, nil},
		{"one masked", []float32{negInf, -1}, 2, 1, nil},
		{"nan", []float32{1, nan, 2}, 3, 0, ErrBadLogits},
		{"all masked", []float32{negInf, negInf}, 2, 0, ErrBadLogits},
		{"infinite", []float32{1, inf}, 2, 0, ErrBadLogits},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, temp := range []float32{0, 1} {
				var s sampler
				got, err := s.sample(tc.logits, tc.limit, protocol.SamplingOptions{Temperature: temp, TopK: 1}, 0)
				if got != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("temperature %v: got %d %v, want %d %v", temp, got, err, tc.want, tc.err)
				}
			}
		})
	}
}

// top-k and top-p by heap must keep what a full sort would.
func TestCutsEqualSort(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	byPreference := func(a, b candidate) int {
		if a.more(b) {
			return -1
		}
		return 1
	}
	for range 300 {
		logits := make([]float32, 1+r.IntN(300))
		for i := range logits {
			logits[i] = float32(1+r.IntN(40)) / 64 // many ties, exact sums
		}
		var s sampler
		all := slices.Clone(s.pick(logits, 1, 0, 40))
		slices.SortFunc(all, byPreference)
		k := 1 + r.IntN(len(logits))
		top := s.pick(logits, 1, k, 40)
		slices.SortFunc(top, byPreference)
		if !slices.Equal(top, all[:k]) {
			t.Fatalf("k=%d: got %v, want %v", k, top, all[:k])
		}
		var sum, acc float64
		for _, c := range all {
			sum += float64(c.p)
		}
		p := r.Float64()
		n := 0
		for n < len(all) && acc < p*sum {
			acc += float64(all[n].p)
			n++
		}
		got, gotSum := cutTopP(s.pick(logits, 1, 0, 40), sum, p)
		if !slices.Equal(got, all[:n]) || gotSum != acc {
			t.Fatalf("p=%v: got %v, want %v", p, got, all[:n])
		}
	}
}

func BenchmarkSample(b *testing.B) {
	logits := make([]float32, 151936)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	for _, bc := range []struct {
		name string
		o    protocol.SamplingOptions
	}{
		{"greedy", protocol.SamplingOptions{}},
		{"top_k=50", protocol.SamplingOptions{Temperature: 0.8, TopK: 50}},
		{"top_p=0.95", protocol.SamplingOptions{Temperature: 0.8, TopP: 0.95}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var s sampler
			for i := range b.N {
				if _, err := s.sample(logits, len(logits), bc.o, i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
