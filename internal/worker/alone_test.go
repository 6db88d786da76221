package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
)

// alone is a worker that does not run.
func alone(change ...func(*Config)) *Worker {
	cfg := Config{
		Assignment: cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode, Generation: 1},
		Namespace:  cluster.DefaultNamespace, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// Of an assignment, generation and orders are taken over, and the former is told; what a worker is changes
// otherwise.
func TestAdoptsAGeneration(t *testing.T) {
	w := alone()
	next := w.Assignment()
	next.Generation, next.Desire, next.Sleep, next.Node = 2, cluster.DesireDrain, 1, "node-9"
	w.adopt(next)
	if as := w.Assignment(); as.Generation != 2 || as.SleepLevel() != 1 || as.Node == "node-9" {
		t.Errorf("assignment %+v", as)
	}
	if st := w.Status(); st.Generation != 2 {
		t.Errorf("generation %d in the status", st.Generation)
	}
}

// What the engine says of its cache becomes events with ids in a row.
func TestKVEventsOfEachKind(t *testing.T) {
	k := newKVEvents(func(context.Context) {})
	defer k.publishing.Close()
	k.Stored(nil, 0, make([]cluster.KVStoredBlock, 2))
	k.Removed([]uint64{1}, "evicted")
	k.Cleared(3)
	got, ok := k.since(0, 10)
	if !ok || len(got) != 3 {
		t.Fatalf("%d events, %t", len(got), ok)
	}
	for i, want := range []cluster.KVEvent{{Kind: cluster.KVStored, Count: 2}, {Kind: cluster.KVRemoved, Count: 1, Reason: "evicted"}, {Kind: cluster.KVCleared, Count: 3}} {
		if e := got[i]; e.Kind != want.Kind || e.Count != want.Count || e.Reason != want.Reason || e.EventID != uint64(i) || e.Epoch != k.epoch {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if got, ok := k.since(3, 10); !ok || len(got) != 0 {
		t.Errorf("after the last: %d events, %t", len(got), ok)
	}
	if _, ok := k.since(4, 10); ok {
		t.Error("there are events after the next")
	}
	for range kvRing {
		k.Cleared(0)
	}
	if _, ok := k.since(2, 10); ok {
		t.Error("an event is kept for ever")
	}
	if got, ok := k.since(3, 10); !ok || len(got) != 10 || got[0].EventID != 3 {
		t.Errorf("the oldest that is kept: %v, %t", got, ok)
	}
}

// steps is a backend whose steps give these logits, one after the other.
type steps struct {
	engine.Backend
	logits [][]float32
	err    error
}

func (s *steps) Step(_ context.Context, batch []engine.BatchSeq) error {
	copy(batch[0].Logits, s.logits[0])
	s.logits = s.logits[1:]
	return s.err
}

// A device that computes something else each time does not serve.
func TestWarmUpComparesTwoSteps(t *testing.T) {
	nan, errStep := float32(math.NaN()), errors.New("step failed")
	for _, tc := range []struct {
		what string
		a, b []float32
		err  error
		want string
	}{
		{"the same", []float32{1, 2, 3}, []float32{1, 2, 3}, nil, ""},
		{"not a number, twice", []float32{nan, 2, 3}, []float32{nan, 2, 3}, nil, ""},
		{"the first differs", []float32{1, 2, 3}, []float32{9, 2, 3}, nil, "token 0"},
		{"the last differs", []float32{1, 2, 3}, []float32{1, 2, 4}, nil, "token 2"},
		{"the step fails", []float32{1, 2, 3}, []float32{1, 2, 3}, errStep, "step failed"},
	} {
		err := warmUp(t.Context(), &steps{logits: [][]float32{tc.a, tc.b}, err: tc.err}, 3)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || tc.err != nil && !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %q", tc.what, err, tc.want)
		}
	}
}

// The end of the engine is the worker's, but for one that ends anyway or has drained.
func TestEngineEndedIsTold(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	end()
	err := errors.New("device lost")
	for _, tc := range []struct {
		ctx       context.Context
		err, want error
	}{{t.Context(), err, err}, {t.Context(), ErrDrained, nil}, {over, err, nil}} {
		if got := engineEnded(tc.ctx, tc.err); !errors.Is(got, tc.want) || tc.want == nil && got != nil {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

// Totals of the engine become counters, by what each report adds.
func TestTotalsAreCounted(t *testing.T) {
	r := &running{Worker: alone(func(c *Config) { c.Metrics = metrics.NewRegistry() })}
	r.meters.relabel(cluster.RoleDecode, cluster.EndpointGenerate)
	r.meters.measure(cluster.WorkerStats{DraftTokensTotal: 5, AcceptedTokensTotal: 3}, 4, nil)
	r.meters.measure(cluster.WorkerStats{DraftTokensTotal: 9, AcceptedTokensTotal: 4}, 6, nil)
	for name, want := range map[string]float64{"spec_decode_draft_tokens_total": 9, "spec_decode_accepted_tokens_total": 4} {
		if got := r.metric(t, "dynamo_component_"+name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
