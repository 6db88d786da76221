package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

// slowDecode makes every token take a while.
func slowDecode(d time.Duration) func(*mock.Options) {
	return func(o *mock.Options) { o.StepTime = func(int, int) time.Duration { return d } }
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	var wg sync.WaitGroup
	for i := range 5 {
		p := prompt(r, 20+i)
		wg.Go(func() { check(t, w.generate(t.Context(), "", request(fmt.Sprint("r", i), p, 60)), p, 60) })
	}
	eventually(t, "all run", func() bool { return d.Status().Stats.Running == 5 })
	if err := d.Drain(t.Context(), time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it left discovery", func() bool { return len(w.calls.Instances()) == 0 })
	if st := d.Status(); st.State != cluster.StateDraining || st.Drain == nil || st.Drain.Sequences != 5 {
		t.Errorf("status while draining: %+v %+v", st.State, st.Drain)
	}
	wg.Wait() // all five end as if nothing happened
	if err := <-d.ended; !errors.Is(err, ErrDrained) {
		t.Errorf("Run returned %v, want ErrDrained", err)
	}
	d.once.Do(func() {})
	st := d.Status()
	if st.Drain.Finished != 5 || st.Drain.Cancelled != 0 {
		t.Errorf("drain counts %+v, want 5 finished", st.Drain)
	}
	if _, err := w.c.Store.Get(t.Context(), cluster.StatusKey(cluster.DefaultNamespace, "worker-1")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the lease is not revoked: its status key is still there (%v)", err)
	}
}

func TestDrainOverdueThenResume(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowDecode(5 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan result, 1)
	go func() { done <- w.generate(ctx, "", request("long", prompt(r, 20), 1500)) }()
	eventually(t, "it runs", func() bool { return d.Status().Stats.Running == 1 })
	if err := d.Drain(t.Context(), time.Now().Add(50*time.Millisecond), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drain is overdue and says what is open", func() bool {
		dr := d.Status().Drain
		return dr != nil && dr.Overdue && dr.Left == 1 && len(dr.Open) == 1 && dr.Open[0].RequestID == "long" && !dr.Safe
	})
	if err := d.Resume(t.Context(), d.Assignment()); err != nil {
		t.Fatal(err)
	}
	d.waitState(t, cluster.StateReady)
	eventually(t, "it is found again", func() bool { return len(w.calls.Instances()) == 1 })
	p := prompt(r, 30)
	check(t, w.generate(t.Context(), "", request("after", p, 4)), p, 4)
	cancel()
	<-done
}

// A drain that is taken back while the store is out of reach ends no worker: what runs
// goes on, and the worker is found again when the store is back.
func TestResumeWithoutStore(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	p, done := prompt(r, 20), make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", request("long", p, 800)) }()
	eventually(t, "it runs", func() bool { return d.Status().Stats.Running == 1 })
	d.drain(t)
	eventually(t, "it left discovery", func() bool { return len(w.calls.Instances()) == 0 })
	w.c.Store.SetOutage(true)
	if err := d.Resume(t.Context(), d.Assignment()); err != nil {
		t.Fatal(err)
	}
	d.waitState(t, cluster.StateReady)
	w.c.Store.SetOutage(false)
	eventually(t, "it is found again", func() bool { return len(w.calls.Instances()) == 1 })
	check(t, <-done, p, 800)
	check(t, w.generate(t.Context(), "", request("after", p, 4)), p, 4)
}

func TestDrainForceCutsOff(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowDecode(5 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	done := make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", request("long", prompt(r, 20), 1500)) }()
	eventually(t, "it runs", func() bool { return d.Status().Stats.Running == 1 })
	if err := d.Drain(t.Context(), time.Time{}, true); err != nil {
		t.Fatal(err)
	}
	if err := <-d.ended; !errors.Is(err, ErrDrained) {
		t.Errorf("Run returned %v, want ErrDrained", err)
	}
	d.once.Do(func() {})
	if got := <-done; got.err == nil {
		t.Error("the cut-off request ended well")
	}
	if st := d.Status().Drain; st == nil || st.CutOff != 1 || st.Moved != 0 {
		t.Errorf("the drain says %+v", st)
	}
}

// Draining a prefill worker: messages in hand are finished, new ones go elsewhere.
func TestDrainPrefill(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowPrefill(&w.opts)
	p1 := w.start("worker-1", cluster.RolePrefill)
	w.start("worker-2", cluster.RolePrefill)
	w.opts.StepTime = nil
	d := w.start("worker-3", cluster.RoleDecode)
	eventually(t, "prefill workers are seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 2 })
	var wg sync.WaitGroup
	for i := range 8 {
		p := prompt(r, 120)
		wg.Go(func() {
			got := w.generate(t.Context(), "", request(fmt.Sprint("r", i), p, 5))
			check(t, got, p, 5)
			if got.timing != nil && got.timing.Prefill == "local" {
				t.Errorf("request %d fell back: %s", i, got.timing.PrefillWhy)
			}
		})
	}
	eventually(t, "it computes", func() bool { return p1.Status().Stats.Running > 0 })
	if err := p1.Drain(t.Context(), time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
	if err := <-p1.ended; !errors.Is(err, ErrDrained) {
		t.Errorf("Run returned %v, want ErrDrained", err)
	}
	p1.once.Do(func() {})
	wg.Wait()
}

// A prefill worker whose drain is taken back fetches from the queue again.
func TestResumePrefill(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	w.opts.StepTime = func(prompt, _ int) time.Duration { return time.Duration(prompt) * 4 * time.Millisecond }
	p := w.start("worker-1", cluster.RolePrefill)
	w.opts.StepTime = nil
	d := w.start("worker-2", cluster.RoleDecode)
	seen := func() bool { return len(d.sees(cluster.RolePrefill)) == 1 }
	eventually(t, "the prefill worker is seen", seen)
	first, done := prompt(r, 120), make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", request("first", first, 5)) }()
	eventually(t, "it computes", func() bool { return p.Status().Stats.Running == 1 })
	p.drain(t)
	eventually(t, "it left discovery", func() bool { return !seen() })
	if err := p.Resume(t.Context(), p.Assignment()); err != nil {
		t.Fatal(err)
	}
	p.waitState(t, cluster.StateReady)
	check(t, <-done, first, 5)
	eventually(t, "it is seen again", seen)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	next := prompt(r, 100)
	got := w.generate(ctx, "", request("next", next, 5))
	check(t, got, next, 5)
	if got.timing == nil || got.timing.Prefill != "worker-1" || got.timing.PrefillWay != protocol.WayQueue {
		t.Errorf("prefilled by %+v", got.timing)
	}
}

// A lost lease: the worker registers again under a new id and streams go on.
func TestLostLease(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	p := prompt(r, 20)
	done := make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", request("a", p, 200)) }()
	eventually(t, "it runs", func() bool { return d.Status().Stats.Running == 1 })
	old := d.Status().InstanceID
	if err := w.c.Store.RevokeLease(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is registered under a new id", func() bool {
		i := w.calls.Instances()
		return len(i) == 1 && i[0].InstanceID != old
	})
	check(t, <-done, p, 200)
	p2 := prompt(r, 20)
	check(t, w.generate(t.Context(), "", request("b", p2, 5)), p2, 5)
	eventually(t, "its status is there again", func() bool {
		st, _, err := store.GetJSON[cluster.WorkerStatus](t.Context(), w.c.Store, cluster.StatusKey(cluster.DefaultNamespace, "worker-1"))
		return err == nil && st.InstanceID != old
	})
	// It is counted right after the status was asked for, which is there.
	d.counts(t, 1, metrics.ComponentLeaseLosses)
}

func TestLoadFailure(t *testing.T) {
	w := newWorld(t)
	boom := errors.New("no such model")
	cfg := w.c.Config(t, "worker-1")
	x := New(Config{
		Assignment: cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode}, Namespace: cluster.DefaultNamespace,
		Store: w.c.Store, Bus: cfg.Bus, Queue: w.queue, Runtime: cfg, Log: w.c.Log,
		Metrics: metrics.NewRegistry(), QueueDepth: func() int { return 0 },
		Load: func(context.Context, func(float64)) (*Loaded, error) { return nil, boom },
	})
	if err := x.Run(t.Context()); !errors.Is(err, boom) {
		t.Errorf("Run returned %v, want the load error", err)
	}
	leases, err := w.c.Store.Leases(t.Context())
	if err != nil || len(leases) != 1 { // the frontend's
		t.Errorf("%d leases left, want 1 (%v)", len(leases), err)
	}
}

// Clearing the prefix cache is announced, and what follows starts from nothing.
func TestClearKV(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	d := w.start("worker-1", cluster.RoleDecode)
	p := prompt(r, 100)
	var kinds []cluster.KVEventKind
	seen := make(chan cluster.KVEvent, 100)
	sub, err := w.c.Bus.Subscribe(t.Context(), events.Subject(cluster.DefaultNamespace, "decode", cluster.TopicKVEvents), func(e events.Event) {
		var ev cluster.KVEvent
		if e.Decode(&ev) == nil {
			seen <- ev
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	check(t, w.generate(t.Context(), "", request("a", p, 3)), p, 3)
	clearKV := runtimetest.Client(t, w.c.Runtime(t, "operator"), "decode", cluster.EndpointClearKV)
	s, err := clearKV.Call(t.Context(), clearKV.Instances()[0], "clear", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got protocol.ClearedKV
	if err := s.Recv(t.Context(), &got); err != nil || got.Blocks != 6 {
		t.Errorf("cleared %d blocks, want 6 (%v)", got.Blocks, err)
	}
	again := w.generate(t.Context(), "", request("b", p, 3))
	check(t, again, p, 3)
	if again.timing.CachedTokens != 0 {
		t.Errorf("%d tokens were cached after the clear", again.timing.CachedTokens)
	}
	eventually(t, "stored, cleared, stored", func() bool {
		for {
			select {
			case ev := <-seen:
				kinds = append(kinds, ev.Kind)
				if ev.WorkerID != d.Status().InstanceID || ev.Worker != "worker-1" || ev.Time.IsZero() {
					t.Errorf("event %+v", ev)
				}
				continue
			default:
			}
			i := slices.Index(kinds, cluster.KVCleared)
			return i > 0 && kinds[i-1] == cluster.KVStored && kinds[len(kinds)-1] == cluster.KVStored
		}
	})
}

// A drain without a deadline is not logged with one in the year 1.
func TestOrdersWithoutADeadline(t *testing.T) {
	if got := fmt.Sprint(order{}.attrs()...); strings.Contains(got, "deadline") || !strings.Contains(got, "force") {
		t.Errorf("got %s", got)
	}
	at := time.Unix(1e9, 0)
	if got := (order{deadline: at}).attrs(); !slices.Contains(got, any("deadline")) || !slices.Contains(got, any(at)) {
		t.Errorf("got %v", got)
	}
}
