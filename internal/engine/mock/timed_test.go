package mock_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Engines report of each step how long it took and the features of its work: those that
// follow from the entries of its batch.
func TestTimedStepsAndTheirReports(t *testing.T) {
	var want, got []engine.StepReport
	var now time.Duration
	timed := &mock.Timed{BlockSize: 16, Token: func(c *engine.Choice) uint32 { return uint32(c.Sampling.Seed)<<8 | uint32(c.Position) }}
	timed.Took = func(batch []engine.BatchSeq) time.Duration {
		var r engine.StepReport
		for _, s := range batch {
			for i := range s.Tokens {
				if len(s.Tokens) == 1 {
					r.Decodes, r.DecodeContext = r.Decodes+1, r.DecodeContext+s.Start+1
				} else {
					r.PrefillTokens, r.ChunkContext = r.PrefillTokens+1, r.ChunkContext+s.Start+i+1
				}
			}
		}
		r.Busy = time.Duration(1+len(want)%3) * time.Millisecond
		r.Wall = r.Busy
		want = append(want, r)
		now += r.Busy
		return r.Busy
	}
	s, err := engine.NewStepper(engine.Config{
		NumBlocks: 64, MaxBatchTokens: 100, Now: func() time.Time { return time.Unix(0, 0).Add(now) },
		Observe: func(r engine.StepReport) { r.Predicted = 0; got = append(got, r) },
	}, timed)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var streams []*engine.Stream
	for i := range 12 {
		tokens := make([]uint32, 1+r.IntN(250))
		for k := range tokens {
			tokens[k] = r.Uint32()>>1 | 1<<30
		}
		stream, err := s.Engine.Submit(t.Context(), engine.Request{ID: strconv.Itoa(i), Tokens: tokens, Stop: protocol.StopConditions{MaxTokens: 5}, Sampling: protocol.SamplingOptions{Seed: uint64(i)}})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	for {
		progress, err := s.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !progress {
			break
		}
	}
	for i, stream := range streams {
		o, _ := stream.Take()
		if len(o.Tokens) != 5 || o.Tokens[4] != uint32(i)<<8|4 || o.Finish != protocol.FinishLength {
			t.Errorf("request %d: %v %s", i, o.Tokens, o.Finish)
		}
	}
	if len(got) != len(want) || len(got) < 10 {
		t.Fatalf("%d reports of %d steps", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	if err := s.Engine.Check(t.Context(), true); err != nil {
		t.Error(err)
	}
}
