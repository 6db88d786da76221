package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// device is a simulated one: how long its steps take is known.
type device struct {
	cost  [numFeatures]float64
	slow  float64 // how many times slower than that
	noise float64 // standard deviation of the logarithm
	// spikes is the share of steps that something held up for ten times as long.
	spikes float64
	// roof, if set, lets reading weights hide that much computing.
	roof bool
	r    *rand.Rand
}

// exact is the duration of a step without noise.
func (d *device) exact(w *stepWork) float64 {
	x := w.features()
	var sum float64
	for j := range x {
		sum += x[j] * d.cost[j]
	}
	if d.roof { // reading weights and multiplying overlap
		tokens := x[perDecode]*d.cost[perDecode] + x[perToken]*d.cost[perToken]
		sum -= min(d.cost[perStep], tokens)
	}
	return sum * d.slow
}

func (d *device) step(w *stepWork) time.Duration {
	t := d.exact(w) * math.Exp(d.noise*d.r.NormFloat64())
	if d.r.Float64() < d.spikes {
		t *= 10
	}
	return time.Duration(t * 1e9)
}

// Devices as they are: a small model on two cores of a laptop, a large model there,
// a tiny model of the tests, and one with matrix units and long contexts.
func devices() map[string]device {
	return map[string]device{
		"laptop, 0.6B": {cost: [numFeatures]float64{35e-3, 2.5e-3, 4e-6, 2.5e-3, 0.8e-6}, slow: 1},
		"laptop, 8B":   {cost: [numFeatures]float64{400e-3, 20e-3, 4e-6, 32e-3, 2e-6}, slow: 1},
		"tiny model":   {cost: [numFeatures]float64{40e-6, 15e-6, 1e-9, 8e-6, 4e-9}, slow: 1},
		"matrix units": {cost: [numFeatures]float64{30e-3, 0.4e-3, 3e-6, 0.3e-3, 0.2e-6}, slow: 1},
		"hidden":       {cost: [numFeatures]float64{35e-3, 2.5e-3, 4e-6, 2.5e-3, 0.8e-6}, slow: 1, roof: true},
		"free chunks":  {cost: [numFeatures]float64{1, 10e-3, 4e-6, 1e-3, 0.1e-6}, slow: 1},
	}
}

// randomWork is the work of a step of a busy worker: decoding sequences, and in some
// steps a chunk.
func randomWork(r *rand.Rand) *stepWork {
	var w stepWork
	if r.IntN(10) > 0 {
		for range 1 + r.IntN(16) {
			w.add(50+r.IntN(1000), 1)
		}
	}
	if w.decodes == 0 || r.IntN(3) == 0 {
		w.add(r.IntN(2000), 32<<r.IntN(5))
	}
	return &w
}

// errors returns the median and the 95th percentile of the relative errors of
// predictions, noise left out.
func (d *device) errors(m *stepModel, works func(*rand.Rand) *stepWork) (median, most float64) {
	var off []float64
	for range 500 {
		w := works(d.r)
		off = append(off, math.Abs(m.predict(w)/d.exact(w)-1))
	}
	slices.Sort(off)
	return off[250], off[475]
}

// From nothing the model learns each device, with noise and with steps that are held
// up.
func TestStepModelLearns(t *testing.T) {
	for name, d := range devices() {
		for _, noise := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("%s, noise %v", name, noise), func(t *testing.T) {
				d.r, d.noise = rand.New(rand.NewPCG(1, 2)), noise
				if noise > 0 {
					d.spikes = 0.02
				}
				var m stepModel
				for range 300 {
					w := randomWork(d.r)
					m.learn(w, d.step(w))
				}
				median, most := d.errors(&m, randomWork)
				t.Logf("median error %.3f, 95 %% below %.3f, spread %.3f", median, most, m.spread)
				limit := 0.06 + noise
				if median > limit || most > 0.2+noise {
					t.Errorf("predictions are off by %.2f, 95 %% by up to %.2f", median, most)
				}
			})
		}
	}
}

// A device that becomes three times as slow, and as fast again later, is known after
// a few steps; also what it does to chunks, when only decode steps have shown it.
func TestStepModelFollowsSpeed(t *testing.T) {
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			d.r, d.noise = rand.New(rand.NewPCG(3, 4)), 0.05
			var m stepModel
			for range 300 {
				w := randomWork(d.r)
				m.learn(w, d.step(w))
			}
			decodes := func(*rand.Rand) *stepWork { return &stepWork{decodes: 4, decodeContext: 2000} }
			chunk := func(*rand.Rand) *stepWork {
				return &stepWork{decodes: 4, decodeContext: 2000, tokens: 64, chunkContext: chunkContext(500, 64)}
			}
			for _, slow := range []float64{3, 1} {
				d.slow = slow
				for range 12 {
					w := decodes(d.r)
					m.learn(w, d.step(w))
				}
				if off, _ := d.errors(&m, decodes); off > 0.15 {
					t.Errorf("%v times slower: decode steps are off by %.2f", slow, off)
				}
				// Had nothing been learned about chunks, that would be a factor of three.
				before, _ := d.errors(&m, chunk)
				if before > 0.8 {
					t.Errorf("%v times slower: steps with chunks are off by %.2f, without having seen any", slow, before)
				}
				for range 12 {
					for _, w := range []*stepWork{chunk(d.r), decodes(d.r)} {
						m.learn(w, d.step(w))
					}
				}
				if off, _ := d.errors(&m, chunk); off > 0.15 {
					t.Errorf("%v times slower: steps with chunks are off by %.2f", slow, off)
				}
			}
		})
	}
}

// What was learned about chunks is there after days in which there were none.
func TestStepModelRemembers(t *testing.T) {
	patience.OneGoroutine(t)
	for name, d := range devices() {
		t.Run(name, func(t *testing.T) {
			d.r, d.noise, d.spikes = rand.New(rand.NewPCG(11, 12)), 0.1, 0.01
			var m stepModel
			for range 300 {
				w := randomWork(d.r)
				m.learn(w, d.step(w))
			}
			for range 300_000 {
				w := &stepWork{decodes: 4, decodeContext: 2000}
				m.learn(w, d.step(w))
			}
			chunk := func(r *rand.Rand) *stepWork {
				n := 32 << r.IntN(5)
				return &stepWork{decodes: 4, decodeContext: 2000, tokens: n, chunkContext: chunkContext(r.IntN(1000), n)}
			}
			if median, most := d.errors(&m, chunk); median > 0.4 || most > 0.5 {
				t.Errorf("chunks are off by %.2f, 95 %% by up to %.2f", median, most)
			}
		})
	}
}

// One step that was held up hardly changes what is predicted.
func TestStepModelForgivesOneStep(t *testing.T) {
	d := devices()["laptop, 0.6B"]
	d.r = rand.New(rand.NewPCG(5, 6))
	var m stepModel
	for range 300 {
		w := randomWork(d.r)
		m.learn(w, d.step(w))
	}
	w := &stepWork{decodes: 4, decodeContext: 2000}
	before := m.predict(w)
	m.learn(w, 20*time.Second) // four hundred times as long as ever
	if f := m.predict(w) / before; f > 1.6 {
		t.Errorf("predictions grew by a factor of %.2f", f)
	}
	for range 4 {
		m.learn(w, d.step(w))
	}
	if f := m.predict(w) / before; f > 1.1 {
		t.Errorf("four steps later predictions are still larger by a factor of %.2f", f)
	}
}

// Whatever steps report, costs stay positive and finite, and a usual device is learned
// again afterwards.
func TestStepModelIsStable(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	durations := []time.Duration{-time.Second, 0, 1, time.Microsecond, 40 * time.Millisecond, time.Second, 1000 * time.Hour, math.MaxInt64}
	for range 50 {
		var m stepModel
		for range 500 {
			w := randomWork(r)
			if r.IntN(5) == 0 {
				w = &stepWork{}
			}
			m.learn(w, durations[r.IntN(len(durations))])
			for j, c := range m.costs() {
				if !(c > 0 && c < mostSeconds*mostSeconds) {
					t.Fatalf("cost %d is %g", j, c)
				}
				if v := m.variance[j][j]; !(v > 0 && v <= 1.001*m.mostVariance(j)) {
					t.Fatalf("variance %d is %g, at most %g", j, v, m.mostVariance(j))
				}
			}
			if !(m.spread >= 0 && m.spread <= 1) {
				t.Fatalf("spread %g", m.spread)
			}
		}
		d := devices()["laptop, 0.6B"]
		d.r, d.noise = r, 0.05
		for range 300 {
			w := randomWork(r)
			m.learn(w, d.step(w))
		}
		if median, most := d.errors(&m, randomWork); median > 0.25 || most > 0.5 {
			t.Fatalf("after all that predictions are off by %.2f, 95 %% by up to %.2f", median, most)
		}
	}
}

// fit returns the most tokens whose chunk fits into a time.
func TestStepModelFit(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	models := []stepModel{{}}
	for _, d := range devices() {
		d.r = r
		var m stepModel
		for range 50 {
			w := randomWork(r)
			m.learn(w, d.step(w))
		}
		models = append(models, m)
	}
	for range 5000 {
		m := &models[r.IntN(len(models))]
		start, n := r.IntN(1<<r.IntN(18)), 1+r.IntN(2000)
		if got := m.fit(start, n, m.chunk(start, n)); got != n {
			t.Fatalf("start %d: %d of %d tokens fit into their own time", start, got, n)
		}
		seconds := m.chunk(start, n) * 2 * r.Float64()
		got := m.fit(start, 1<<20, seconds)
		if got > 0 && m.chunk(start, got) > seconds*(1+1e-5) || m.chunk(start, got+1) < seconds {
			t.Fatalf("start %d: %d tokens for %g seconds; they take %g, one more %g", start, got, seconds, m.chunk(start, got), m.chunk(start, got+1))
		}
	}
	for _, seconds := range []float64{0, -1, math.Inf(-1)} {
		if got := models[0].fit(0, 10, seconds); got != 0 {
			t.Errorf("%d tokens fit into %v", got, seconds)
		}
	}
	if got := models[1].fit(0, 1<<20, math.Inf(1)); got != 1<<20 {
		t.Errorf("%d tokens fit into eternity", got)
	}
}
