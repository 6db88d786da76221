package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
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

// fickleBus is connected or not.
type fickleBus struct {
	events.Bus
	gone atomic.Bool
}

func (b *fickleBus) Connected() bool { return !b.gone.Load() }

// A request in the queue waits for its notice; not for the deadline when the queue is out
// of reach at two looks in a row, except that somebody fetched it before.
func TestAwaitPrefill(t *testing.T) {
	errLost := errors.New("lost")
	notice := func(phase protocol.PrefillPhase, tokens int) protocol.PrefillNotice {
		return protocol.PrefillNotice{Phase: phase, Tokens: tokens}
	}
	for _, tc := range []struct {
		what string
		do   func(b *fickleBus, wt *waiter)
		want error
		at   time.Duration
	}{
		{"done", func(_ *fickleBus, wt *waiter) { wt.notices <- notice(protocol.PrefillDone, 40) }, nil, 0},
		{"done with less", func(_ *fickleBus, wt *waiter) { wt.notices <- notice(protocol.PrefillDone, 39) }, errPrefillFailed, 0},
		{"failed", func(_ *fickleBus, wt *waiter) { wt.notices <- notice(protocol.PrefillFailed, 40) }, errPrefillFailed, 0},
		{"lost", func(_ *fickleBus, wt *waiter) { wt.lost <- errLost }, errLost, 0},
		{"nobody answers", func(*fickleBus, *waiter) {}, errRemoteTimeout, time.Minute},
		{"out of reach", func(b *fickleBus, _ *waiter) { b.gone.Store(true) }, errQueueLost, 2 * queueLookEvery},
		{"out of reach at one look of two", func(b *fickleBus, _ *waiter) {
			go func() {
				time.Sleep(queueLookEvery / 2)
				for i := range 40 {
					b.gone.Store(i%2 == 0)
					time.Sleep(queueLookEvery)
				}
			}()
		}, errRemoteTimeout, time.Minute},
		{"out of reach after somebody fetched it", func(b *fickleBus, wt *waiter) {
			wt.notices <- notice(protocol.PrefillStarted, 0)
			b.gone.Store(true)
		}, errRemoteTimeout, time.Minute},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus, begin := &fickleBus{}, time.Now()
				f := &filling{w: alone(func(c *Config) { c.Bus = bus })}
				wt := f.w.waiters.add("ticket", nil)
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errRemoteTimeout)
				defer cancel()
				tc.do(bus, wt)
				_, err := f.awaitPrefill(ctx, protocol.RemotePrefillRequest{TokenIDs: make([]uint32, 40)}, wt)
				if !errors.Is(err, tc.want) || time.Since(begin) != tc.at {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), tc.want, tc.at)
				}
			})
		})
	}
}

// A notification goes to the hold it tells the reading of, or to who waits for the prefill.
func TestNotificationsAreHandedOn(t *testing.T) {
	w := alone()
	read, wt := w.holds.add("t"), w.waiters.add("t", nil)
	send := func(phase protocol.PrefillPhase) {
		t.Helper()
		w.Noticed("worker-2.ab", protocol.PrefillNotice{Phase: phase, Ticket: "t"})
	}
	if send(protocol.PrefillRead); len(read) != 1 || len(wt.notices) != 0 {
		t.Errorf("read: %d to the hold, %d to the waiter", len(read), len(wt.notices))
	}
	if send(protocol.PrefillDone); len(read) != 1 || len(wt.notices) != 1 {
		t.Errorf("done: %d to the hold, %d to the waiter", len(read), len(wt.notices))
	}
}

// The generation of an assignment that changes nothing else is taken over, and told.
func TestAdoptsAGeneration(t *testing.T) {
	w := alone()
	next := w.Assignment()
	next.Generation, next.Desire = 2, cluster.DesireDrain
	w.adopt(next)
	if as := w.Assignment(); as.Generation != 2 || as.Desire == cluster.DesireDrain {
		t.Errorf("assignment %+v", as)
	}
	if st := w.Status(); st.Generation != 2 {
		t.Errorf("generation %d in the status", st.Generation)
	}
}

// What the engine says of its cache becomes events with ids in a row.
func TestKVEventsOfEachKind(t *testing.T) {
	k := newKVEvents()
	k.Stored(nil, 0, make([]cluster.KVStoredBlock, 2))
	k.Removed([]uint64{1}, "evicted")
	k.Cleared(3)
	for i, want := range []cluster.KVEvent{{Kind: cluster.KVStored, Count: 2}, {Kind: cluster.KVRemoved, Count: 1, Reason: "evicted"}, {Kind: cluster.KVCleared, Count: 3}} {
		select {
		case e := <-k.ch:
			if e.Kind != want.Kind || e.Count != want.Count || e.Reason != want.Reason || e.EventID != uint64(i) {
				t.Errorf("event %d: %+v", i, e)
			}
		default:
			t.Fatalf("no event %d", i)
		}
	}
}

// Answers tell where the prompt was computed: here and why, or elsewhere and how.
func TestTimingTellsThePrefill(t *testing.T) {
	d := &disaggregation{w: alone(), way: protocol.WayQueue}
	if got := d.timing(&engine.FirstToken{Why: "short", Queued: 1, Prefill: 2, Cached: 3}); *got != (protocol.Timing{
		Worker: "worker-1", Prefill: "local", PrefillWhy: "short", QueueNS: 1, PrefillNS: 2, CachedTokens: 3,
	}) {
		t.Errorf("here: %+v", got)
	}
	if got := d.timing(&engine.FirstToken{Remote: true, Why: "worker-2"}); *got != (protocol.Timing{
		Worker: "worker-1", Prefill: "worker-2", PrefillWay: protocol.WayQueue,
	}) {
		t.Errorf("elsewhere: %+v", got)
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
		w := alone()
		w.info.VocabSize = 3
		err := w.warmUp(t.Context(), &steps{logits: [][]float32{tc.a, tc.b}, err: tc.err})
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
		if got := alone().engineEnded(tc.ctx, tc.err); !errors.Is(got, tc.want) || tc.want == nil && got != nil {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}

// Who waits in a room that the prefill leaves without an answer is told, in success, too.
func TestRoomIsLeft(t *testing.T) {
	for _, tc := range []struct{ why, want error }{{nil, errRoomClosed}, {errKilled, errKilled}} {
		synctest.Test(t, func(t *testing.T) {
			rs := newRooms()
			r, err := rs.enter(1, time.Now().Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				_, err := rs.join(t.Context(), 1, protocol.RemotePrefillRequest{Deadline: time.Now().Add(time.Minute)})
				got <- err
			}()
			synctest.Wait()
			rs.leave(1, r, tc.why)
			if err := <-got; !errors.Is(err, tc.want) {
				t.Errorf("left with %v: %v, want %v", tc.why, err, tc.want)
			}
		})
	}
}

// Totals of the engine become counters, by what each report adds.
func TestTotalsAreCounted(t *testing.T) {
	r := &running{Worker: alone(func(c *Config) { c.Metrics = metrics.NewRegistry() })}
	m := newMeter(r.Worker)
	m.update(cluster.WorkerStats{DraftTokensTotal: 5, AcceptedTokensTotal: 3}, 4)
	m.update(cluster.WorkerStats{DraftTokensTotal: 9, AcceptedTokensTotal: 4}, 6)
	for name, want := range map[string]float64{"spec_decode_draft_tokens_total": 9, "spec_decode_accepted_tokens_total": 4} {
		if got := r.metric(t, "dynamo_component_"+name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
