package cpu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// TestFamiliesUnderScheduling runs every family behind the real scheduler: requests
// give the same tokens as alone and in one piece, whatever chunks, batches, the
// prefix cache and preemption do to them.
func TestFamiliesUnderScheduling(t *testing.T) {
	for _, family := range model.Families() {
		if _, ok := modeltest.Families()[family]; !ok {
			t.Errorf("no small checkpoint of %s", family)
		}
	}
	cases := []struct {
		name string
		cfg  engine.Config
		// total counts what the case is about, to see that it happened to some family:
		// it depends on the prompts and on how fast steps are.
		total func(s cluster.WorkerStats) uint64
	}{
		{"chunks of seven tokens", engine.Config{NumBlocks: 200, MaxSeqs: 12, MaxBatchTokens: 7}, nil},
		{"one at a time, cached", engine.Config{NumBlocks: 64, MaxSeqs: 1}, func(s cluster.WorkerStats) uint64 { return s.CachedTokensTotal }},
		{"pool too small for all", engine.Config{NumBlocks: 22, MaxSeqs: 12}, func(s cluster.WorkerStats) uint64 { return s.PreemptedTotal }},
		{"chunks for a target that cannot be kept", engine.Config{NumBlocks: 200, MaxSeqs: 12, ITLTarget: time.Nanosecond}, func(s cluster.WorkerStats) uint64 { return s.MixedStepsTotal }},
		{"drafts", engine.Config{NumBlocks: 200, MaxSeqs: 12, Speculative: cluster.Speculative{Method: cluster.SpeculativeNgram, LookupMin: 1}}, func(s cluster.WorkerStats) uint64 { return s.AcceptedTokensTotal }},
		{"drafts, one at a time", engine.Config{NumBlocks: 64, MaxSeqs: 1, Speculative: cluster.Speculative{Method: cluster.SpeculativeNgram, LookupMin: 1}}, func(s cluster.WorkerStats) uint64 { return s.AcceptedTokensTotal }},
	}
	totals := make(map[string]uint64)
	for name, spec := range modeltest.Families() {
		if patience.RaceDetector && name != "llama" && name != "mixtral" {
			continue // other arithmetic in the same goroutines
		}
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 1))
			spec.Seed = seed
			if os.Getenv(cpu.ActivationsVariable) == "bf16" {
				spec.DType = "bf16"
			}
			alone := cputest.New(t, modeltest.Generate(t, spec), cpu.Options{BlockSize: 8})
			type job struct {
				prompt, want []uint32
			}
			common := randomTokens(r, 40, alone.Model.TokenLimit())
			var jobs []job
			for i := range 10 {
				p := append(slices.Clone(common[:i*4]), randomTokens(r, 1+r.IntN(40), alone.Model.TokenLimit())...)
				jobs = append(jobs, job{p, alone.Greedy(p, 16)})
			}
			for _, tc := range cases {
				t.Run(tc.name, func(t *testing.T) {
					e := startEngine(t, alone.Model, tc.cfg)
					var streams []*engine.Stream
					for i, j := range jobs {
						s, err := e.Submit(t.Context(), engine.Request{ID: fmt.Sprint(i), Tenant: fmt.Sprint(i * i % 7), Tokens: j.prompt, Stop: protocol.StopConditions{MaxTokens: 16}})
						if err != nil {
							t.Fatal(err)
						}
						streams = append(streams, s)
					}
					for i, s := range streams {
						if got := enginetest.Read(t, s); !slices.Equal(got, jobs[i].want) {
							t.Errorf("prompt of %d tokens: got %v, want %v", len(jobs[i].prompt), got, jobs[i].want)
						}
					}
					if tc.total != nil {
						totals[tc.name] += tc.total(e.Stats())
					}
				})
			}
		})
	}
	for _, tc := range cases {
		if tc.total != nil && totals[tc.name] == 0 && !patience.RaceDetector {
			t.Errorf("%s: it never happened", tc.name)
		}
	}
}

// Drafts change no bit of an answer: tokens, and the log probabilities of all that
// were likely, are those without drafts, greedy and drawn.
func TestDraftsChangeNoBit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	drafts := cluster.Speculative{Method: cluster.SpeculativeNgram, Tokens: 7, LookupMin: 1}
	var accepted, wrong uint64
	families := []string{"mixtral", "qwen3", "gemma2"}
	if patience.RaceDetector {
		families = families[:1] // other arithmetic in the same goroutines
	}
	for _, family := range families {
		spec, ok := modeltest.Families()[family]
		if !ok {
			t.Fatalf("no small checkpoint of %s", family)
		}
		t.Run(family, func(t *testing.T) {
			spec.Seed = seed
			m := modeltest.Open(t, spec)
			plain := startEngine(t, m, engine.Config{NumBlocks: 400, MaxSeqs: 1})
			drafting := startEngine(t, m, engine.Config{NumBlocks: 400, MaxSeqs: 6, Speculative: drafts})
			var requests []engine.Request
			for i := range 24 {
				p := randomTokens(r, 2+r.IntN(30), m.TokenLimit())
				q := engine.Request{ID: fmt.Sprint(i), Tokens: append(slices.Clone(p), p...), Stop: protocol.StopConditions{MaxTokens: 60}}
				width := 5
				q.Output.Logprobs = &width
				switch i % 4 {
				case 1:
					q.Sampling = protocol.SamplingOptions{Temperature: 0.3, Seed: r.Uint64(), TopK: 20}
				case 2:
					q.Sampling = protocol.SamplingOptions{Temperature: 0.7, Seed: r.Uint64(), TopP: 0.9, RepetitionPenalty: 1.05}
				case 3: // hardly anything else is allowed, so it repeats itself
					q.Sampling = protocol.SamplingOptions{Temperature: 1, Seed: r.Uint64(), AllowedTokenIDs: p[:2]}
				}
				requests = append(requests, q)
			}
			var streams []*engine.Stream
			for _, q := range requests {
				s, err := drafting.Submit(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				streams = append(streams, s)
			}
			for i, q := range requests {
				s, err := plain.Submit(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				want, wantLogprobs := readScored(t, s)
				got, gotLogprobs := readScored(t, streams[i])
				if !slices.Equal(got, want) || !reflect.DeepEqual(gotLogprobs, wantLogprobs) {
					t.Errorf("request %d: got %v, want %v; equal log probabilities: %t", i, got, want, reflect.DeepEqual(gotLogprobs, wantLogprobs))
				}
			}
			st := drafting.Stats()
			accepted, wrong = accepted+st.AcceptedTokensTotal, wrong+st.DraftTokensTotal-st.AcceptedTokensTotal
		})
	}
	t.Logf("%d drafts were right and %d wrong", accepted, wrong)
	if min(accepted, wrong) < uint64(20*len(families)) {
		t.Errorf("%d drafts were right and %d wrong: the test needs both", accepted, wrong)
	}
}

// readScored reads a stream with log probabilities to its end.
func readScored(t *testing.T, s *engine.Stream) ([]uint32, *protocol.Logprobs) {
	t.Helper()
	var tokens []uint32
	all := &protocol.Logprobs{}
	for {
		o, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return tokens, all
		}
		if err != nil || o.Err != nil {
			t.Fatal(err, o.Err)
		}
		tokens = append(tokens, o.Tokens...)
		if o.Logprobs != nil {
			all.Width = o.Logprobs.Width
			all.Append(o.Logprobs)
		}
	}
}

func randomTokens(r *rand.Rand, n, vocab int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(r.IntN(vocab))
	}
	return out
}

// assumedCosts is a backend whose steps take what an engine assumes before it has seen any,
// so that it neither learns that drafts are too expensive nor depends on how busy the machine
// is: models of the tests are too small for drafts to be worth it.
type assumedCosts struct {
	engine.Backend
	busy time.Duration
}

func (b *assumedCosts) Step(ctx context.Context, batch []engine.BatchSeq) error {
	b.busy = 1600 // ns, which the step takes in any case
	for _, s := range batch {
		if n := len(s.Tokens); n == 1 {
			b.busy += 100
		} else {
			b.busy += 200 * time.Duration(n)
		}
	}
	return b.Backend.Step(ctx, batch)
}

func (b *assumedCosts) Busy() time.Duration { return b.busy }

// startEngine runs an engine over a new backend until the end of the test.
func startEngine(t *testing.T, m *model.Model, cfg engine.Config) *engine.Engine {
	t.Helper()
	d := cpu.NewDevice("cpu:0", 2)
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.NewBackend(cpu.Options{BlockSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	mem, err := b.AllocKV(cfg.NumBlocks)
	if err != nil {
		t.Fatal(err)
	}
	var backend engine.Backend = b
	if cfg.Speculative.Enabled() {
		backend = &assumedCosts{Backend: b}
	}
	t.Cleanup(func() { _, _, _, _ = b.Close(), mem.Close(), d.Close(), w.Close() }) // after the engine's end
	return enginetest.Start(t, backend, cfg)
}
