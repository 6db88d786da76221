package engine_test

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
)

// steps counts the steps of a backend, each of which may fail or wait.
type steps struct {
	n    atomic.Int32
	fail atomic.Bool
	gate atomic.Pointer[chan struct{}]
}

func (s *steps) step() error {
	s.n.Add(1)
	if g := s.gate.Load(); g != nil {
		<-*g
	}
	if s.fail.Load() {
		return errors.New("device lost")
	}
	return nil
}

// figures are the statistics without measured times.
func figures(e *engine.Engine) cluster.WorkerStats {
	st := e.Stats()
	st.StepNanosTotal, st.StepMissNanosTotal, st.StepWaitNanosTotal, st.StepGapNanosTotal = 0, 0, 0, 0
	return st
}

// A probe computes, and leaves no trace in statistics and cache, even in a pool that is all
// cached.
func TestProbeLeavesNoTrace(t *testing.T) {
	var s steps
	heard := &removals{}
	e, _ := start(t, engine.Config{NumBlocks: 8, Sink: heard}, mock.Options{BlockSize: 16, Fail: s.step})
	collect(t, submit(t, e, request("a", prompt(seeded(t), 100), 3)))
	before, ran := figures(e), s.n.Load()
	if err := e.Probe(t.Context()); err != nil || s.n.Load() != ran+1 {
		t.Fatalf("probe: %v, %d steps", err, s.n.Load()-ran)
	}
	if after := figures(e); !reflect.DeepEqual(after, before) || before.KVCached == 0 {
		t.Errorf("statistics after the probe %+v, before %+v", after, before)
	}
	if n := e.Progress(); n != before.ComputedTotal+before.GeneratedTotal || n == 0 {
		t.Errorf("progress %d of %+v", n, before)
	}
	for id := range 2 { // each fills four blocks; the token that it generates is not computed
		collect(t, submit(t, e, request(strconv.Itoa(id), prompt(seeded(t), 64), 1)))
	}
	if st := e.Stats(); st.KVCached != 8 {
		t.Fatalf("%d blocks are cached", st.KVCached)
	}
	evicted := heard.lru.Load()
	if err := e.Probe(t.Context()); err != nil || heard.lru.Load() != evicted {
		t.Errorf("probe of a full pool: %v, %d blocks evicted", err, heard.lru.Load()-evicted)
	}
}

// An engine that is stuck answers no probe in time, holds one of them, and computes it no
// more when it goes on.
func TestProbeOfAStuckEngine(t *testing.T) {
	var s steps
	e, _ := start(t, engine.Config{NumBlocks: 8}, mock.Options{BlockSize: 16, Fail: s.step})
	gate := make(chan struct{})
	s.gate.Store(&gate)
	stream := submit(t, e, request("a", []uint32{1}, 2))
	patience.Until(t, "the step has begun", func() bool { return s.n.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := e.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("first: %v", err)
	}
	if err := e.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "earlier probe") {
		t.Errorf("second: %v", err)
	}
	s.gate.Store(nil)
	close(gate)
	collect(t, stream)
	if err := e.Check(t.Context(), true); err != nil {
		t.Error(err)
	}
	if n := s.n.Load(); n != 2 {
		t.Errorf("%d steps for two tokens", n)
	}
	if err := e.Probe(t.Context()); err != nil || s.n.Load() != 3 {
		t.Errorf("afterwards: %v, %d steps", err, s.n.Load())
	}
}

// Probes that fail end the engine as requests do; one that succeeds forgives the others.
func TestProbesThatFail(t *testing.T) {
	var s steps
	b := mock.New(mock.Options{BlockSize: 16, VocabSize: vocab, Fail: s.step})
	mem, err := b.AllocKV(8)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	e, err := engine.New(engine.Config{NumBlocks: 8}, b)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	fail := func() {
		t.Helper()
		if err := e.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "device lost") {
			t.Errorf("probe: %v", err)
		}
	}
	s.fail.Store(true)
	fail()
	fail()
	s.fail.Store(false)
	if err := e.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	s.fail.Store(true)
	for range 3 {
		fail()
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "3 failed steps") {
		t.Errorf("the engine ended with %v", err)
	}
	if err := e.Probe(t.Context()); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}
