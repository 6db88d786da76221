package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// machine is a simulated device whose step times are known. Tests run in a bubble:
// its clock is virtual.
type machine struct {
	step, decode, context, token, chunkContext float64 // seconds

	slow  float64 // factor, changed by tests between steps
	noise float64 // standard deviation of the logarithm of a step's duration
	wait  time.Duration
	r     *rand.Rand

	mixed []time.Duration // steps that decode and prefill, without noise
	chunk []int           // their tokens of prompts
}

// laptop is a model of 0.6 billion parameters on two cores.
func laptop() *machine {
	return &machine{step: 35e-3, decode: 2.5e-3, context: 4e-6, token: 2.5e-3, chunkContext: 0.8e-6, slow: 1, r: rand.New(rand.NewPCG(1, 1))}
}

func (m *machine) work(batch []engine.BatchSeq) (busy, wait time.Duration) {
	t := m.step
	decodes, tokens := 0, 0
	for _, s := range batch {
		n := len(s.Tokens)
		if n == 1 {
			decodes++
			t += m.decode + m.context*float64(s.Start+1)
		} else {
			tokens += n
			t += m.token*float64(n) + m.chunkContext*float64(n*s.Start+n*(n+1)/2)
		}
	}
	t *= m.slow
	if decodes > 0 && tokens > 0 {
		m.mixed, m.chunk = append(m.mixed, seconds(t)), append(m.chunk, tokens)
	}
	return seconds(t * math.Exp(m.noise*m.r.NormFloat64())), m.wait
}

func seconds(t float64) time.Duration { return time.Duration(t * 1e9) }

// gaps reads a stream to its end and returns when its tokens came and the times
// between one and the next.
func gaps(t *testing.T, s *engine.Stream) []time.Duration {
	t.Helper()
	var list []time.Duration
	var last time.Time
	for {
		o, err := s.Next(t.Context())
		if err != nil {
			return list
		}
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		now := time.Now()
		if !last.IsZero() && len(o.Tokens) > 0 {
			list = append(list, now.Sub(last))
		}
		last = now
	}
}

// share returns the quantile p of a list.
func share[T ~int | ~int64](list []T, p float64) T {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[min(int(p*float64(len(list))), len(list)-1)]
}

// A reader gets tokens in time while long prompts are prefilled, on devices that the
// engine knows nothing of, and prefill keeps most of its speed.
func TestITLTarget(t *testing.T) {
	tiny := &machine{step: 50e-6, decode: 10e-6, context: 1e-9, token: 6e-6, chunkContext: 1e-9, slow: 1}
	fast := &machine{step: 12e-3, decode: 0.3e-3, context: 2e-6, token: 0.25e-3, chunkContext: 0.1e-6, slow: 1}
	large := &machine{step: 400e-3, decode: 20e-3, context: 4e-6, token: 30e-3, chunkContext: 2e-6, slow: 1}
	for _, tc := range []struct {
		name   string
		m      *machine
		noise  float64
		target time.Duration
		// The middle and the 95th percentile of steps that do both, as parts of the target.
		least, most float64
		chunk       int // tokens in the middle chunk, at least
	}{
		{"laptop", laptop(), 0, 200 * time.Millisecond, 0.9, 1, 36},
		{"laptop, noise", laptop(), 0.15, 200 * time.Millisecond, 0.7, 1, engine.MinChunkTokens},
		{"laptop, one second", laptop(), 0.05, time.Second, 0.8, 1, 200},
		{"fast", fast, 0.05, 50 * time.Millisecond, 0.8, 1, 64},
		{"fast, default", fast, 0.05, 0, 0.8, 1, 350},
		{"tiny model: whole budget", tiny, 0.3, 0, 0, 1, 500},
		{"target that cannot be kept", large, 0.05, 100 * time.Millisecond, 10, 17, engine.MinChunkTokens},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := *tc.m
				m.r, m.noise = rand.New(rand.NewPCG(2, 2)), tc.noise
				e, _ := start(t, engine.Config{NumBlocks: 1024, ITLTarget: tc.target}, mock.Options{BlockSize: 64, Work: m.work})
				r := rand.New(rand.NewPCG(3, 3))
				reader := submit(t, e, request("reader", prompt(r, 40), 400))
				var others []*engine.Stream
				for i := range 6 {
					others = append(others, submit(t, e, request(fmt.Sprint("long", i), prompt(r, 3000), 1)))
				}
				list := gaps(t, reader)
				for _, s := range others {
					gaps(t, s)
				}
				if len(m.mixed) < 20 {
					t.Fatalf("only %d steps did both", len(m.mixed))
				}
				target := tc.target
				if target == 0 {
					target = engine.DefaultITLTarget
				}
				of := func(d time.Duration) float64 { return float64(d) / float64(target) }
				learned := m.mixed[10:]
				t.Logf("%d steps did both, half of them up to %s, 95 %% up to %s; median chunk %d",
					len(m.mixed), share(learned, 0.5), share(learned, 0.95), share(m.chunk[10:], 0.5))
				if got := of(share(learned, 0.95)); got > tc.most {
					t.Errorf("95%% of steps take up to %.2f targets, want %.2f", got, tc.most)
				}
				if got := of(share(learned, 0.5)); got < tc.least {
					t.Errorf("half of the steps take at most %.2f targets, want %.2f", got, tc.least)
				}
				if got := of(share(list[12:], 0.95)); got > tc.most*(1+2*tc.noise) {
					t.Errorf("95%% of tokens come after up to %.2f targets, want %.2f", got, tc.most)
				}
				if got := share(m.chunk[10:], 0.5); got < tc.chunk {
					t.Errorf("the median chunk has %d tokens, want %d", got, tc.chunk)
				}
				st := e.Stats()
				if st.MixedStepsTotal != uint64(len(m.mixed)) || st.StepNanosTotal == 0 || st.StepWaitNanosTotal != 0 {
					t.Errorf("stats %+v, want %d mixed steps", st, len(m.mixed))
				}
				if miss := float64(st.StepMissNanosTotal) / float64(st.StepNanosTotal); miss > 0.1+tc.noise {
					t.Errorf("predictions are off by a share of %.2f", miss)
				}
			})
		})
	}
}

// A neighbor that makes the device three times as slow delays a few tokens; chunks
// get smaller, and larger again when it leaves.
func TestITLTargetWithNeighbor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := laptop()
		m.token, m.chunkContext, m.noise = 1e-3, 0.1e-6, 0.05
		e, _ := start(t, engine.Config{NumBlocks: 2048}, mock.Options{BlockSize: 64, Work: func(b []engine.BatchSeq) (busy, wait time.Duration) {
			if n := len(m.mixed); n == 100 || n == 200 {
				m.slow = 4 - m.slow // 1, 3, 1
			}
			return m.work(b)
		}})
		r := rand.New(rand.NewPCG(3, 3))
		reader := submit(t, e, request("reader", prompt(r, 40), 300))
		for i := range 10 {
			s := submit(t, e, request(fmt.Sprint("long", i), prompt(r, 4000), 1))
			defer s.Cancel()
		}
		gaps(t, reader)
		if len(m.mixed) < 290 {
			t.Fatalf("only %d steps did both", len(m.mixed))
		}
		// Three times as slow, MinChunkTokens take a little longer than the target.
		for _, tc := range []struct {
			from, to, chunk int
			most            time.Duration
		}{{20, 100, 110, 200 * time.Millisecond}, {108, 200, engine.MinChunkTokens, 250 * time.Millisecond}, {215, 290, 110, 200 * time.Millisecond}} {
			steps, chunks := m.mixed[tc.from:tc.to], m.chunk[tc.from:tc.to]
			t.Logf("steps %d to %d: 95 %% up to %s, median chunk %d", tc.from, tc.to, share(steps, 0.95), share(chunks, 0.5))
			if got := share(steps, 0.95); got > tc.most {
				t.Errorf("steps %d to %d: 95%% take up to %s", tc.from, tc.to, got)
			}
			if got := share(chunks, 0.5); got < tc.chunk {
				t.Errorf("steps %d to %d: median chunk of %d tokens, want %d", tc.from, tc.to, got, tc.chunk)
			}
		}
		if got := slices.Max(m.mixed); got > 650*time.Millisecond {
			t.Errorf("a step took %s", got)
		}
	})
}

// Others that use the device are not taken for slow computing, and tokens come in
// time beside them.
func TestITLTargetOnSharedDevice(t *testing.T) {
	for _, wait := range []time.Duration{60 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := laptop()
			m.token, m.chunkContext, m.wait = 1e-3, 0.1e-6, wait
			e, _ := start(t, engine.Config{NumBlocks: 2048}, mock.Options{BlockSize: 64, Work: m.work})
			r := rand.New(rand.NewPCG(3, 3))
			reader := submit(t, e, request("reader", prompt(r, 40), 100))
			for i := range 10 {
				s := submit(t, e, request(fmt.Sprint("long", i), prompt(r, 4000), 1))
				defer s.Cancel()
			}
			list := gaps(t, reader)
			st := e.Stats()
			if got, want := st.StepWaitNanosTotal, st.StepsTotal*uint64(wait); got != want {
				t.Errorf("waited for %d ns, want %d", got, want)
			}
			if miss := float64(st.StepMissNanosTotal) / float64(st.StepNanosTotal); miss > 0.05 {
				t.Errorf("predictions are off by a share of %.2f", miss)
			}
			// Half of the target is left in any case.
			limit := max(engine.DefaultITLTarget, engine.DefaultITLTarget/2+wait)
			if got := share(list[12:], 0.95); got > limit*101/100 || got < limit*9/10 {
				t.Errorf("95%% of tokens come after up to %s, want a little less than %s", got, limit)
			}
		})
	}
}

// A target nobody can miss is none: chunks have the whole budget.
func TestNoITLTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := laptop()
		e, _ := start(t, engine.Config{NumBlocks: 1024, ITLTarget: time.Hour}, mock.Options{BlockSize: 64, Work: m.work})
		r := rand.New(rand.NewPCG(3, 3))
		reader := submit(t, e, request("reader", prompt(r, 40), 20))
		long := submit(t, e, request("long", prompt(r, 3000), 1))
		gaps(t, reader)
		gaps(t, long)
		if got := slices.Max(m.chunk[1:]); got != 511 {
			t.Errorf("the largest chunk has %d tokens, want all that one decoding sequence leaves", got)
		}
	})
}

// A pause is not a wait, and the last token of a prompt makes nobody hurry.
func TestITLTargetLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := laptop()
		m.chunkContext = 0
		var reports []engine.StepReport
		e, _ := start(t, engine.Config{NumBlocks: 1024, Observe: func(r engine.StepReport) { reports = append(reports, r) }},
			mock.Options{BlockSize: 64, Work: m.work})
		r := rand.New(rand.NewPCG(3, 3))
		// After the first step one token of the first prompt is left.
		first, second := submit(t, e, request("a", prompt(r, 513), 1)), submit(t, e, request("b", prompt(r, 2000), 1))
		gaps(t, first)
		gaps(t, second)
		if got := reports[1]; got.Decodes != 1 || got.PrefillTokens != 511 {
			t.Errorf("second step: %+v, want the last token of one prompt and 511 of the other", got)
		}
		if got := reports[0]; got.Predicted != 0 || got.Busy != got.Wall || got.Busy < time.Second {
			t.Errorf("first step: %+v", got)
		}
		time.Sleep(time.Hour)
		reader := submit(t, e, request("reader", prompt(r, 40), 30))
		long := submit(t, e, request("long", prompt(r, 4000), 1))
		gaps(t, reader)
		gaps(t, long)
		for _, chunk := range m.chunk[len(m.chunk)-20:] {
			if chunk < 40 {
				t.Errorf("a chunk of %d tokens after a pause", chunk)
			}
		}
	})
}

// A short prompt passes a long one, which goes on all the same, however many short
// ones come.
func TestShortPromptsPass(t *testing.T) {
	for _, decoding := range []bool{false, true} {
		t.Run(fmt.Sprintf("decoding=%t", decoding), func(t *testing.T) {
			// alone is the time of the long prompt without short ones.
			var alone, beside time.Duration
			for _, short := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					m := laptop()
					m.chunkContext = 0.02e-6
					e, _ := start(t, engine.Config{NumBlocks: 4096}, mock.Options{BlockSize: 64, MaxContext: 1 << 16, Work: m.work})
					r := rand.New(rand.NewPCG(3, 3))
					if decoding {
						s := submit(t, e, request("reader", prompt(r, 40), 5000))
						defer s.Cancel()
					}
					begin := time.Now()
					long := submit(t, e, request("long", prompt(r, 20000), 1))
					if !short {
						gaps(t, long)
						alone = time.Since(begin)
						return
					}
					done := make(chan struct{})
					go func() { gaps(t, long); close(done) }()
					for i := 0; ; i++ {
						// Three at a time, and the next when these are through.
						var streams []*engine.Stream
						at := time.Now()
						for j := range 3 {
							streams = append(streams, submit(t, e, request(fmt.Sprint("short", i, j), prompt(r, 100+r.IntN(100)), 1)))
						}
						for _, s := range streams {
							gaps(t, s)
						}
						select {
						case <-done:
							beside = time.Since(begin)
							if i < 10 {
								t.Errorf("only %d rounds of short prompts", i)
							}
							return
						default:
						}
						// The step at hand, those with their tokens, of which they get half, and
						// perhaps one for what is left over.
						limit := 8 * time.Second
						if decoding {
							limit = 9 * time.Second
						}
						if took := time.Since(at); took > limit {
							t.Errorf("round %d: short prompts took %s", i, took)
						}
					}
				})
			}
			t.Logf("the long prompt took %s alone and %s beside short ones", alone, beside)
			if beside > alone*22/10 {
				t.Errorf("the long prompt took %s, %s alone", beside, alone)
			}
		})
	}
}

// Whatever steps take, and whatever backends say of it, outputs are what they are
// alone, all prompts come to their end, and no step exceeds its limits.
func TestOutputsWithWildClocks(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			r := seeded(t)
			cfg := engine.Config{
				NumBlocks: 40 + r.IntN(200), MaxSeqs: 1 + r.IntN(20), MaxBatchTokens: 1 + r.IntN(1<<(1+r.IntN(9))),
				ITLTarget: time.Duration(math.Exp(30 * r.Float64())), // a nanosecond to hours
			}
			if r.IntN(2) == 0 {
				cfg.Speculative = ngram(t, "ngram:num_speculative_tokens=9,prompt_lookup_min=1")
			}
			cfg.Observe = func(got engine.StepReport) {
				if got.Busy < 0 || got.Busy > got.Wall || got.Predicted < 0 || got.PrefillTokens > cfg.MaxBatchTokens {
					t.Errorf("%+v", got)
				}
			}
			durations := []time.Duration{-time.Hour, 0, 1, time.Microsecond, 20 * time.Millisecond, time.Second, time.Minute}
			e, _ := start(t, cfg, mock.Options{BlockSize: 16, Work: func([]engine.BatchSeq) (busy, wait time.Duration) {
				return durations[r.IntN(len(durations))], durations[r.IntN(len(durations))]
			}})
			shared := prompt(rand.New(rand.NewPCG(1, 1)), 200)
			requests := rand.New(rand.NewPCG(r.Uint64(), 1))
			var streams []*engine.Stream
			var want [][]uint32
			for i := range 30 {
				p := append(slices.Clone(shared[:requests.IntN(200)]), prompt(requests, 1+requests.IntN(100))...)
				n := 1 + requests.IntN(60)
				streams, want = append(streams, submit(t, e, request(fmt.Sprint(i), p, n))), append(want, mock.Continue(p, n, vocab))
			}
			for i, s := range streams {
				var got []uint32
				for {
					o, err := s.Next(t.Context())
					if err != nil {
						break
					}
					got = append(got, o.Tokens...)
				}
				if !equal(got, want[i]) {
					t.Errorf("%+v: request %d: got %v, want %v", cfg, i, got, want[i])
				}
			}
		})
	}
}
