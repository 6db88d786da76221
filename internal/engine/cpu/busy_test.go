package cpu

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// Busy leaves out what a step waited for the device, before it began and where it
// let others go first.
func TestBusy(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Hidden: 64, HeadDim: 16, FFN: 128, Vocab: 260})
	r := newRig(t, m, 2, 64, Options{BlockSize: 64})
	turns := &r.device.turns
	other := newTurn() // a decode step of another backend
	mustTake(t, turns, other)
	batch := make([]engine.BatchSeq, 8)
	for i := range batch {
		batch[i] = engine.BatchSeq{Tokens: prompt(1, 512, m.TokenLimit()), Blocks: table(8*i, 8)}
	}
	var wall time.Duration
	done := make(chan error, 1)
	go func() {
		begin := time.Now()
		err := r.Step(t.Context(), batch)
		wall = time.Since(begin)
		done <- err
	}()
	// waits reports whether the step waits for the device, false when it is over.
	waits := func() bool {
		for { // bounded by the test's own deadline
			turns.mu.Lock()
			n := len(turns.prefill)
			turns.mu.Unlock()
			if n > 0 {
				return true
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return false
			case <-time.After(100 * time.Microsecond):
			}
		}
	}
	var held time.Duration // how long the step waited at least
	times := 0
	for waits() {
		begin := time.Now()
		time.Sleep(5 * time.Millisecond)
		held += time.Since(begin)
		times++
		turns.release(other)
		mustTake(t, turns, other)
	}
	turns.release(other)
	if times < 2 {
		t.Fatal("the step never let others go first, so half of the case tests nothing")
	}
	if busy := r.Busy(); busy <= 0 || wall-busy < held {
		t.Errorf("busy for %s of %s, though others had the device for %s", busy, wall, held)
	}
}
