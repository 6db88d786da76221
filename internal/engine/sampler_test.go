package engine

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
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

// plainly is sample as one would write it without regard to speed: everything is
// sorted. Draws go through candidates in the order that a heap of top-k leaves, or by
// id, or with top-p most likely first.
func plainly(logits []float32, o protocol.SamplingOptions, pos int) uint32 {
	best := slices.Max(logits)
	var c []candidate
	for i, l := range logits {
		if l >= best-40*o.Temperature || o.TopK > 0 && o.TopK < len(logits) {
			c = append(c, candidate{uint32(i), l})
		}
	}
	if o.TopK > 0 && o.TopK < len(logits) {
		c = plainHeap(c, o.TopK)
	}
	var sum float64
	for i := range c {
		p := math.Exp((float64(c[i].p) - float64(best)) / float64(o.Temperature))
		c[i].p = float32(p)
		sum += p
	}
	if o.MinP > 0 {
		c = slices.DeleteFunc(c, func(x candidate) bool { return x.p < o.MinP })
		sum = 0
		for _, x := range c {
			sum += float64(x.p)
		}
	}
	if o.TopP > 0 && o.TopP < 1 {
		c, sum = plainTopP(c, sum, float64(o.TopP))
	}
	u := uniform(o.Seed, pos) * sum
	for _, x := range c {
		if u -= float64(x.p); u < 0 {
			return x.id
		}
	}
	return c[len(c)-1].id
}

// plainHeap returns the k largest in the order of a binary heap that took in all.
func plainHeap(all []candidate, k int) []candidate {
	c := slices.Clone(all[:k])
	down := func(i int) {
		for {
			m := i
			for _, j := range []int{2*i + 1, 2*i + 2} {
				if j < k && c[j].less(c[m]) {
					m = j
				}
			}
			if m == i {
				return
			}
			c[i], c[m] = c[m], c[i]
			i = m
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for _, x := range all[k:] {
		if c[0].less(x) {
			c[0] = x
			down(0)
		}
	}
	return c
}

func plainTopP(c []candidate, sum, p float64) (kept []candidate, acc float64) {
	c = slices.Clone(c)
	slices.SortFunc(c, byPreference)
	for n := range c {
		if acc >= p*sum {
			return c[:n], acc
		}
		acc += float64(c[n].p)
	}
	return c, acc
}

func byPreference(a, b candidate) int {
	if a.more(b) {
		return -1
	}
	return 1
}

// randomLogits are flat or steep, with or without ties, and some are impossible.
func randomLogits(r *rand.Rand, n int) []float32 {
	logits := make([]float32, n)
	scale := math.Exp(3*r.Float64() - 1)
	step := float32(0)
	if r.IntN(3) == 0 {
		step = 0.25
	}
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * scale)
		if step > 0 {
			logits[i] = float32(math.Round(float64(logits[i]/step))) * step
		}
		if r.IntN(20) == 0 {
			logits[i] = negInf
		}
	}
	logits[r.IntN(n)] = 1 // one is possible
	return logits
}

// Selection finds what a full sort would.
func TestSampleEqualsSort(t *testing.T) {
	patience.OneGoroutine(t)
	r := rand.New(rand.NewPCG(3, 3))
	var s sampler
	for i := range 4000 {
		n := 1 + r.IntN(1+r.IntN(3000))
		logits := randomLogits(r, n)
		o := protocol.SamplingOptions{Temperature: 0.05 + 2*r.Float32(), Seed: r.Uint64()}
		if r.IntN(3) == 0 {
			o.TopK = 1 + r.IntN(n+3)
		}
		if r.IntN(2) == 0 {
			o.TopP = r.Float32()
		}
		if r.IntN(4) == 0 {
			o.MinP = r.Float32() / 10
		}
		want := plainly(logits, o, i)
		if got, err := s.sample(logits, n, o, i); err != nil || got != want {
			t.Fatalf("%d logits, %+v: drew %d %v, want %d", n, o, got, err, want)
		}
	}
}

// top-k and top-p by selection must keep what a full sort would, in its order.
func TestCutsEqualSort(t *testing.T) {
	patience.OneGoroutine(t)
	r := rand.New(rand.NewPCG(3, 3))
	var x nucleus
	for range 2000 {
		all := make([]candidate, 1+r.IntN(1+r.IntN(4000)))
		steep := 40 * r.Float64() * r.Float64()
		logits := make([]float32, len(all))
		var sum float64
		for i := range all {
			p := float32(math.Exp(-steep * r.Float64()))
			if r.IntN(2) == 0 {
				p = float32(1+r.IntN(40)) / 64 // many ties, exact sums
			}
			all[i], logits[i] = candidate{uint32(i), p}, p
			sum += float64(p)
		}
		k := 1 + r.IntN(len(all))
		top, want := largest(nil, logits, k), slices.Clone(all)
		slices.SortFunc(top, byPreference)
		slices.SortFunc(want, byPreference)
		if !slices.Equal(top, want[:k]) {
			t.Fatalf("k=%d: got %v, want %v", k, top, want[:k])
		}
		p := r.Float64()
		if r.IntN(10) == 0 {
			p = 1 - 1e-12
		}
		want, wantSum := plainTopP(all, sum, p)
		if got, gotSum := x.cut(all, sum, p); !slices.Equal(got, want) || gotSum != wantSum {
			t.Fatalf("p=%v: got %d %v, want %d %v", p, len(got), gotSum, len(want), wantSum)
		}
	}
}

func TestArgmax(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	nan := float32(math.NaN())
	for range 5000 {
		logits := randomLogits(r, 1+r.IntN(60))
		want := uint32(slices.Index(logits, slices.Max(logits)))
		if got, ok := argmax(logits); !ok || got != want {
			t.Fatalf("%v: got %d %t, want %d", logits, got, ok, want)
		}
		at := r.IntN(len(logits))
		for _, bad := range []float32{nan, -nan, -negInf} {
			was := logits[at]
			logits[at] = bad
			if got, ok := argmax(logits); ok {
				t.Fatalf("%v: got %d", logits, got)
			}
			logits[at] = was
		}
	}
	if _, ok := argmax([]float32{negInf, negInf}); ok {
		t.Error("found the best of impossible ones")
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
		{"temperature", protocol.SamplingOptions{Temperature: 0.8}},
		{"top_p=0.95", protocol.SamplingOptions{Temperature: 0.8, TopP: 0.95}},
		{"top_p=0.95, sure", protocol.SamplingOptions{Temperature: 0.3, TopP: 0.95}},
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
