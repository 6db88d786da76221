package cpu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/cpu/cputest"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/modeltest"
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
	}
	totals := make(map[string]uint64)
	for name, spec := range modeltest.Families() {
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
						s, err := e.Submit(t.Context(), engine.Request{ID: fmt.Sprint(i), Tokens: j.prompt, Stop: protocol.StopConditions{MaxTokens: 16}})
						if err != nil {
							t.Fatal(err)
						}
						streams = append(streams, s)
					}
					for i, s := range streams {
						if got := readAll(t, s); !slices.Equal(got, jobs[i].want) {
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
		if tc.total != nil && totals[tc.name] == 0 {
			t.Errorf("%s: it never happened", tc.name)
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
	e, err := engine.New(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel(errors.New("test over"))
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Error("the engine did not stop")
		}
		_, _, _, _ = b.Close(), mem.Close(), d.Close(), w.Close()
	})
	return e
}

func readAll(t *testing.T, s *engine.Stream) []uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var tokens []uint32
	for {
		o, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return tokens
		}
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, o.Tokens...)
		if o.Err != nil {
			t.Fatal(o.Err)
		}
	}
}
