package engine_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/enginetest"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

const vocab = 300

// start runs an engine over the mock backend and, when the test ends, stops it and
// proves that no block leaked. It also returns the memory of the KV pool.
func start(t *testing.T, cfg engine.Config, opts mock.Options) (*engine.Engine, []byte) {
	t.Helper()
	opts.VocabSize = vocab
	b := mock.New(opts)
	mem, err := b.AllocKV(cfg.NumBlocks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mem.Close() }) // after the engine's end
	return enginetest.Start(t, b, cfg), mem[0].Bytes()
}

func request(id string, prompt []uint32, n int) engine.Request {
	return engine.Request{ID: id, Tokens: prompt, Stop: protocol.StopConditions{MaxTokens: n}}
}

// collect reads a stream to its end.
func collect(t *testing.T, s *engine.Stream) (tokens []uint32, last engine.Output, first *engine.FirstToken) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		o, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return tokens, last, first
		}
		if err != nil {
			t.Fatalf("stream: %v", err)
		}
		tokens = append(tokens, o.Tokens...)
		if o.First != nil {
			first = o.First
		}
		last = o
	}
}

func submit(t *testing.T, e *engine.Engine, r engine.Request) *engine.Stream {
	t.Helper()
	return enginetest.Submit(t, e, r)
}

func prompt(r *rand.Rand, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(r.IntN(vocab))
	}
	return p
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func equal(a, b []uint32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func contextWithCause(t testing.TB) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(t.Context())
}
