package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
)

// A request is told how long it waited for admission, which is never longer than it exists.
func TestQueueTimeIsTold(t *testing.T) {
	e, _ := start(t, engine.Config{NumBlocks: 64, MaxSeqs: 1},
		mock.Options{BlockSize: 16, StepTime: func(int, int) time.Duration { return time.Millisecond }})
	begin := time.Now()
	a, b := submit(t, e, request("a", []uint32{1}, 30)), submit(t, e, request("b", []uint32{2}, 1))
	_, _, firstA := collect(t, a)
	_, _, firstB := collect(t, b)
	whole := time.Since(begin)
	for id, q := range map[string]time.Duration{"a": firstA.Queued, "b": firstB.Queued} {
		if q < 0 || q > whole {
			t.Errorf("request %s waited %s of %s", id, q, whole)
		}
	}
}

// Admission leaves room for the sequences that run to grow into: who would take the last
// blocks waits until one of them has ended.
func TestAdmissionLeavesHeadroom(t *testing.T) {
	const block = 128
	e, _ := start(t, engine.Config{NumBlocks: 32, MaxSeqs: 8, MaxModelLen: 32 * block},
		mock.Options{BlockSize: block, MaxContext: 32 * block, StepTime: func(int, int) time.Duration { return 2 * time.Millisecond }})
	r := seeded(t)
	a, b := submit(t, e, request("a", prompt(r, 10), 100)), submit(t, e, request("b", prompt(r, 10), 100))
	patience.Until(t, "two run", func() bool { return e.Stats().Running >= 2 })
	// 30 blocks are free; 29 would leave one for two sequences.
	big := submit(t, e, request("big", prompt(r, 29*block), 1))
	collect(t, big)
	if st := e.Stats(); st.FinishedTotal < 2 { // big itself is one
		t.Errorf("29 of 30 free blocks were given away while two sequences ran: %+v", st)
	}
	collect(t, a)
	collect(t, b)
	if st := e.Stats(); st.PreemptedTotal != 0 {
		t.Errorf("%d sequences were preempted", st.PreemptedTotal)
	}
}

// removals counts the blocks that leave the prefix cache to make room.
type removals struct{ lru atomic.Uint64 }

func (*removals) Stored(*uint64, int, []cluster.KVStoredBlock) {}
func (*removals) Cleared(int)                                  {}
func (r *removals) Removed(hashes []uint64, reason string) {
	if reason == "lru" {
		r.lru.Add(uint64(len(hashes)))
	}
}

// Evictions are counted, each block once, as the prefix cache's listeners hear of them.
func TestEvictionsAreCounted(t *testing.T) {
	heard := &removals{}
	e, _ := start(t, engine.Config{NumBlocks: 10, Sink: heard}, mock.Options{BlockSize: 16})
	r := seeded(t)
	collect(t, submit(t, e, request("a", prompt(r, 120), 2))) // seven full blocks are cached
	if st := e.Stats(); st.EvictedTotal != 0 || st.KVCached != 7 {
		t.Fatalf("after the first prompt %d blocks are cached and %d evicted, want 7 and 0", st.KVCached, st.EvictedTotal)
	}
	collect(t, submit(t, e, request("b", prompt(r, 120), 2))) // needs eight of ten
	if got := e.Stats().EvictedTotal; got != 5 || heard.lru.Load() != 5 {
		t.Errorf("%d evictions counted, %d heard of, want 5", got, heard.lru.Load())
	}
}
