package engine_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// repeating returns the next token of a text that repeats itself with a period, but now
// and then differs.
func repeating(tokens []uint32) uint32 {
	period := 5 + int(tokens[0])%9
	n := len(tokens)
	switch {
	case n <= period:
		return uint32(n*31) % lastID
	case n%23 == 0:
		return (tokens[n-1] + uint32(n)) % lastID
	}
	return tokens[n-period]
}

func ngram(t *testing.T, text string) cluster.Speculative {
	t.Helper()
	s, err := cluster.ParseSpeculative(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer collects everything that a request received.
type answer struct {
	tokens           []uint32
	logprobs, prompt *protocol.Logprobs
	finish           protocol.FinishReason
	err              string
}

func read(t *testing.T, s *engine.Stream) answer {
	var a answer
	for {
		o, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			t.Errorf("stream: %v", err)
			return a
		}
		a.tokens = append(a.tokens, o.Tokens...)
		if o.Logprobs != nil {
			if a.logprobs == nil {
				a.logprobs = &protocol.Logprobs{Width: o.Logprobs.Width}
			}
			a.logprobs.Append(o.Logprobs)
		}
		if o.PromptLogprobs != nil {
			a.prompt = o.PromptLogprobs
		}
		if o.Finish != "" {
			a.finish = o.Finish
		}
		if o.Err != nil {
			a.err = o.Err.Error()
		}
	}
}

// randomRequest makes a request with random options; calling it again with an equal
// source makes an equal one.
func randomRequest(r *rand.Rand, id string) engine.Request {
	p := prompt(r, 1+r.IntN(120))
	if r.IntN(2) == 0 { // a prompt that repeats itself
		p = append(p, p...)
	}
	q := request(id, p, 1+r.IntN(120))
	maybe := func(f func()) {
		if r.IntN(4) == 0 {
			f()
		}
	}
	o := &q.Sampling
	maybe(func() { q.Generated = r.IntN(len(p)) })
	maybe(func() {
		o.Temperature, o.Seed = 0.1+r.Float32(), r.Uint64()
		maybe(func() { o.TopK = 1 + r.IntN(50) })
		maybe(func() { o.TopP = 0.5 + r.Float32()/2 })
		maybe(func() { o.MinP = r.Float32() / 5 })
	})
	maybe(func() { o.RepetitionPenalty = 0.8 + r.Float32()/2 })
	maybe(func() { o.FrequencyPenalty, o.PresencePenalty = r.Float32(), r.Float32()-0.5 })
	maybe(func() { o.LogitBias = []protocol.TokenBias{{Token: uint32(r.IntN(vocab)), Bias: 8}} })
	maybe(func() { o.BadWords = [][]uint32{{p[0]}, {p[len(p)-1], p[0]}} })
	maybe(func() { o.AllowedTokenIDs = append(prompt(r, 40), lastID) })
	maybe(func() { q.Stop.StopTokenIDs = prompt(r, 8) })
	maybe(func() { q.Stop.StopTokenIDsVisible = prompt(r, 8) })
	maybe(func() { q.Stop.MinTokens = r.IntN(q.Stop.MaxTokens + 1) })
	maybe(func() { n := r.IntN(4); q.Output.Logprobs = &n })
	maybe(func() { n := r.IntN(3); q.Output.PromptLogprobs = &n })
	maybe(func() { q.Generated, q.Constraint = 0, &counter{end: 20 + r.IntN(80)} })
	return q
}

// Outputs do not depend on speculation, whatever a request asks for and whatever
// happens to it: sequences are preempted and cancelled, come at any time, and find
// each other's blocks in the cache.
func TestSpeculationChangesNothing(t *testing.T) {
	const requests = 60
	for _, tc := range []struct {
		name, speculative string
		cfg               engine.Config
		preempts          bool
	}{
		{"roomy", "ngram", engine.Config{NumBlocks: 512, MaxSeqs: 16}, false},
		{"long drafts", "ngram:num_speculative_tokens=32,prompt_lookup_max=3,prompt_lookup_min=1", engine.Config{NumBlocks: 512, MaxSeqs: 8}, false},
		{"one at a time", "ngram:7", engine.Config{NumBlocks: 64, MaxSeqs: 1}, false},
		{"small pool", "ngram:8", engine.Config{NumBlocks: 40, MaxSeqs: 12}, true},
		{"small steps", "ngram:4", engine.Config{NumBlocks: 256, MaxSeqs: 5, MaxBatchTokens: 11}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			opts := mock.Options{BlockSize: 16, Next: repeating}
			ask := func(i int, id string) engine.Request {
				return randomRequest(rand.New(rand.NewPCG(seed, uint64(i))), fmt.Sprint(id, i))
			}
			// want are the answers without speculation, one request at a time.
			alone, _ := start(t, engine.Config{NumBlocks: 64, MaxSeqs: 1}, opts)
			var want []answer
			for i := range requests {
				want = append(want, read(t, submit(t, alone, ask(i, ""))))
			}
			synctest.Test(t, func(t *testing.T) {
				// A device on which drafts are worth it.
				m := &machine{step: 20e-3, decode: 0.05e-3, token: 0.1e-3, slow: 1, noise: 0.3, r: rand.New(rand.NewPCG(seed, 1000))}
				opts.Work = m.work
				cfg := tc.cfg
				cfg.Speculative = ngram(t, tc.speculative)
				e, _ := start(t, cfg, opts)
				r := rand.New(rand.NewPCG(seed, 1001))
				for round := range 2 { // in the second, blocks of the first are in the cache
					var wg sync.WaitGroup
					for i := range requests {
						// One that stays, and one that leaves in the middle.
						s, leaver := submit(t, e, ask(i, fmt.Sprint(round, "-"))), submit(t, e, ask(i, fmt.Sprint(round, "-leaver-")))
						wg.Go(func() {
							if got := read(t, s); !reflect.DeepEqual(got, want[i]) {
								t.Errorf("round %d, request %d:\n got %+v\nwant %+v", round, i, got, want[i])
							}
						})
						leaves := time.Duration(r.IntN(3000)) * time.Millisecond
						wg.Go(func() {
							time.Sleep(leaves)
							leaver.Cancel()
						})
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					}
					wg.Wait()
				}
				st := e.Stats()
				t.Logf("%d drafted, %d accepted, %d generated in %d steps, %d preempted, %d cancelled",
					st.DraftTokensTotal, st.AcceptedTokensTotal, st.GeneratedTotal, st.StepsTotal, st.PreemptedTotal, st.CancelledTotal)
				if accepted, wrong := st.AcceptedTokensTotal, st.DraftTokensTotal-st.AcceptedTokensTotal; min(accepted, wrong) < 20 {
					t.Errorf("%d drafts were right and %d wrong: the test needs both", accepted, wrong)
				}
				if tc.preempts && st.PreemptedTotal == 0 || st.CancelledTotal == 0 {
					t.Error("nothing was preempted or nothing cancelled, so the case tests nothing")
				}
			})
		})
	}
}

// What is left of an answer after a move to another worker is what it would have
// been, when both speculate.
func TestSpeculationSurvivesMigration(t *testing.T) {
	// Steps of one length, so that drafts are always worth it.
	steady := func([]engine.BatchSeq) (busy, wait time.Duration) {
		return 500 * time.Microsecond, 500 * time.Microsecond
	}
	opts := mock.Options{BlockSize: 16, Next: repeating, Work: steady}
	e, _ := start(t, engine.Config{NumBlocks: 128, Speculative: ngram(t, "ngram")}, opts)
	p := prompt(seeded(t), 40)
	q := request("whole", p, 80)
	q.Sampling = protocol.SamplingOptions{Temperature: 0.6, TopP: 0.95, Seed: 7, FrequencyPenalty: 0.05}
	whole := read(t, submit(t, e, q)).tokens
	for n := 1; n < len(whole); n += 9 {
		q.ID, q.Tokens, q.Generated = fmt.Sprint("rest", n), append(slices.Clone(p), whole[:n]...), n
		q.Stop.MaxTokens = len(whole) - n
		if rest := read(t, submit(t, e, q)).tokens; !equal(rest, whole[n:]) {
			t.Errorf("after %d tokens: %v, want %v", n, rest, whole[n:])
		}
	}
	if st := e.Stats(); st.AcceptedTokensTotal == 0 {
		t.Error("nothing was accepted, so the test tests nothing")
	}
}

// generate runs n sequences at once on a simulated device and returns the virtual
// time it took, and the figures.
func generate(t *testing.T, m *machine, speculative string, n int, next func([]uint32) uint32) (took time.Duration, st cluster.WorkerStats) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dev := *m
		e, _ := start(t, engine.Config{NumBlocks: 4096, Speculative: ngram(t, speculative)}, mock.Options{BlockSize: 64, Work: dev.work, Next: next})
		r := rand.New(rand.NewPCG(4, 4))
		begin := time.Now()
		var streams []*engine.Stream
		for i := range n {
			streams = append(streams, submit(t, e, request(fmt.Sprint(i), prompt(r, 60), 300)))
		}
		for _, s := range streams {
			gaps(t, s)
		}
		took, st = time.Since(begin), e.Stats()
	})
	return took, st
}

// A few sequences that repeat themselves get their tokens in a fraction of the time;
// others lose hardly anything, nor do batches that fill the device anyway.
func TestSpeculationPaysOff(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("the goroutines of TestSpeculationChangesNothing, with many more tokens")
	}
	few := func(tokens []uint32) uint32 { // of ten tokens in no order, so that n-grams come back but say nothing
		h := uint64(tokens[0]) + uint64(len(tokens))*0x9e3779b97f4a7c15
		h ^= h >> 29
		h *= 0xbf58476d1ce4e5b9
		return uint32(h>>33) % 10
	}
	for _, tc := range []struct {
		name    string
		n       int
		next    func([]uint32) uint32
		speedup float64 // at least
		share   float64 // of drafted tokens for each one generated, at most
	}{
		{"one, repeats itself", 1, repeating, 2, 3},
		{"four, repeat themselves", 4, repeating, 1.4, 3},
		{"one, does not", 1, few, 0.96, 0.2},
		{"sixty-four, repeat themselves", 64, repeating, 0.97, 3},
		{"sixty-four, do not", 64, few, 0.99, 0.05},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plain, _ := generate(t, laptop(), "off", tc.n, tc.next)
			took, st := generate(t, laptop(), "ngram", tc.n, tc.next)
			speedup := float64(plain) / float64(took)
			share := float64(st.DraftTokensTotal) / float64(st.GeneratedTotal)
			t.Logf("%s instead of %s: %.2f times as fast; %d drafted, %d accepted, %d generated",
				took, plain, speedup, st.DraftTokensTotal, st.AcceptedTokensTotal, st.GeneratedTotal)
			if speedup < tc.speedup || share > tc.share {
				t.Errorf("%.2f times as fast with %.2f drafted tokens for each one generated; want %.2f and %.2f", speedup, share, tc.speedup, tc.share)
			}
		})
	}
}
