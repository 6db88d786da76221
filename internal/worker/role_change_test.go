package worker

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

// as is the assignment of a worker in another role.
func (r *running) as(role cluster.Role) cluster.Assignment {
	a := r.Assignment()
	a.Role, a.Desire, a.Generation = role, cluster.DesireRun, a.Generation+1
	return a
}

// exposition is what a scrape of the metrics returns.
func exposition(registry *metrics.Registry) string {
	rec := httptest.NewRecorder()
	registry.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return rec.Body.String()
}

// A decode worker becomes a prefill worker and a decode worker again: same engine, same
// pool, same NIXL agent, what it has cached stays, and nobody reaches it in a role that
// it has left.
func TestTurn(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowDecode(time.Millisecond)(&w.opts)
	registry := metrics.NewRegistry()
	d := w.start("worker-1", cluster.RoleDecode, func(c *Config) { c.Metrics = registry })
	prefills := runtimetest.Client(t, w.c.Runtime(t, "operator"), "prefill", cluster.EndpointPrefill)
	engine, agent, lease := d.engine(), d.nixl(), d.Status().InstanceID
	first := w.calls.Instances
	eventually(t, "worker is found", func() bool { return len(first()) == 1 })
	old := first()[0]

	p := prompt(r, 100)
	var wg sync.WaitGroup
	wg.Go(func() { check(t, w.generate(t.Context(), "", request("a", p, 80)), p, 80) })
	eventually(t, "it runs", func() bool { return d.Status().Stats.Running == 1 })
	if err := d.Turn(t.Context(), d.as(cluster.RolePrefill)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it left discovery and says why", func() bool {
		st := d.Status()
		return len(first()) == 0 && (st.State != cluster.StateDraining || st.Reason == "takes the role prefill")
	})
	wg.Wait() // with no other decode worker the stream ends where it is
	eventually(t, "it is a prefill worker", func() bool {
		st := d.Status()
		return st.State == cluster.StateReady && st.Role == cluster.RolePrefill && st.Generation == 2 && st.Drain == nil && len(prefills.Instances()) == 1
	})
	if d.engine() != engine || d.nixl() != agent || d.Status().Stats.KVCached == 0 {
		t.Errorf("not the same engine, or its cache is gone: %+v", d.Status().Stats)
	}
	if d.Status().InstanceID == lease {
		t.Error("it has the lease of the former role")
	}
	if _, _, err := w.c.Store.LeaseTTL(t.Context(), lease); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("the lease of the former role: %v", err)
	}
	if s, err := w.calls.Call(t.Context(), old, "late", nil, request("late", p, 4)); err == nil {
		var o protocol.EngineOutput
		if err := s.Recv(t.Context(), &o); err == nil {
			t.Errorf("the former endpoint answers: %+v", o)
		}
		s.Close()
	}
	st, _, err := store.GetJSON[cluster.WorkerStatus](t.Context(), w.c.Store, cluster.StatusKey(cluster.DefaultNamespace, "worker-1"))
	if err != nil || st.Role != cluster.RolePrefill {
		t.Errorf("its status as others see it: %+v %v", st, err)
	}
	eventually(t, "metrics are those of a prefill worker", func() bool {
		text := exposition(registry)
		return strings.Contains(text, `dynamo_component="prefill"`) && !strings.Contains(text, `dynamo_component="decode"`)
	})

	// It computes prompts for others now.
	d2 := w.start("worker-2", cluster.RoleDecode)
	eventually(t, "the prefill worker is seen", func() bool { return len(d2.sees(cluster.RolePrefill)) == 1 })
	for i := range 4 {
		p := prompt(r, 90+i)
		got := w.generate(t.Context(), "worker-2", request(fmt.Sprint("b", i), p, 5))
		check(t, got, p, 5)
		if got.timing == nil || got.timing.Prefill != "worker-1" {
			t.Errorf("prefilled by %+v", got.timing)
		}
	}

	// And back: prompts come from a third worker's KV, and its own cache.
	p3 := w.start("worker-3", cluster.RolePrefill)
	if err := d.Turn(t.Context(), d.as(cluster.RoleDecode)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a decode worker again", func() bool {
		return d.Status().Role == cluster.RoleDecode && d.Status().State == cluster.StateReady && len(first()) == 2 && len(prefills.Instances()) == 1
	})
	stacks := make([]byte, 4<<20)
	stacks = stacks[:goruntime.Stack(stacks, true)]
	if n := bytes.Count(stacks, []byte(").Listen(")); n != 3 {
		t.Errorf("%d goroutines read the notifications of 3 workers", n)
	}
	got := w.generate(t.Context(), "worker-1", request("again", p, 30))
	check(t, got, p, 30)
	if got.usage == nil || got.usage.CachedTokens == 0 {
		t.Errorf("its prefix cache is gone: %+v", got.usage)
	}
	p = prompt(r, 130)
	got = w.generate(t.Context(), "worker-1", request("c", p, 5))
	check(t, got, p, 5)
	if got.timing == nil || got.timing.Prefill != p3.Name() {
		t.Errorf("prefilled by %+v", got.timing)
	}
}

// Taken back when it is complete already, it is followed by another one: the agent cannot
// know that its word comes too late.
func TestTurnTakenBackTooLate(t *testing.T) {
	w := newWorld(t)
	d := w.start("worker-1", cluster.RoleDecode)
	back := d.as(cluster.RoleDecode)
	back.Generation = 3
	if err := d.Turn(t.Context(), d.as(cluster.RolePrefill)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a prefill worker", func() bool { return d.Status().State == cluster.StateReady && d.Role() == cluster.RolePrefill })
	if err := d.Resume(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a decode worker again", func() bool {
		st := d.Status()
		return st.State == cluster.StateReady && st.Role == cluster.RoleDecode && st.Generation == 3 && len(w.calls.Instances()) == 1
	})
}

// Taken back before it is complete, the worker goes on in the old role, under the new
// generation.
func TestTurnTakenBack(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	p := prompt(r, 20)
	var wg sync.WaitGroup
	wg.Go(func() { check(t, w.generate(t.Context(), "", request("a", p, 300)), p, 300) })
	eventually(t, "it runs", func() bool { return d.Status().Stats.Running == 1 })
	if err := d.Turn(t.Context(), d.as(cluster.RolePrefill)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it left", func() bool { return len(w.calls.Instances()) == 0 })
	back := d.Assignment()
	back.Generation = 3
	if err := d.Resume(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool {
		st := d.Status()
		return len(w.calls.Instances()) == 1 && st.State == cluster.StateReady && st.Role == cluster.RoleDecode && st.Generation == 3 && st.Reason == ""
	})
	wg.Wait()
	check(t, w.generate(t.Context(), "", request("b", p, 4)), p, 4)

	// A drain that is ordered meanwhile is a drain.
	wg.Go(func() { check(t, w.generate(t.Context(), "", request("c", p, 200)), p, 200) })
	eventually(t, "it runs again", func() bool { return d.Status().Stats.Running == 1 })
	if err := d.Turn(t.Context(), d.as(cluster.RolePrefill)); err != nil {
		t.Fatal(err)
	}
	if err := d.Drain(t.Context(), time.Time{}, false); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := <-d.ended; !errors.Is(err, ErrDrained) {
		t.Errorf("Run returned %v, want ErrDrained", err)
	}
	d.once.Do(func() {})
}

// With a deadline, force waits for it.
func TestForceWaitsForTheDeadline(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowDecode(5 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	long := make(chan result, 1)
	p, p2 := prompt(r, 20), prompt(r, 20)
	go func() { long <- w.generate(t.Context(), "", request("long", p2, 1500)) }()
	short := make(chan result, 1)
	go func() { short <- w.generate(t.Context(), "", request("short", p, 60)) }()
	eventually(t, "both run", func() bool { return d.Status().Stats.Running == 2 })
	deadline := time.Now().Add(1500 * time.Millisecond)
	if err := d.Drain(t.Context(), deadline, true); err != nil {
		t.Fatal(err)
	}
	check(t, <-short, p, 60)
	if err := <-d.ended; !errors.Is(err, ErrDrained) || time.Now().Before(deadline) {
		t.Errorf("Run returned %v, %s before the deadline", err, time.Until(deadline))
	}
	d.once.Do(func() {})
	if got := <-long; got.err == nil {
		t.Error("the cut-off request ended well")
	}
}
