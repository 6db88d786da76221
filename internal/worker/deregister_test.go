package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// fakeRouter is a frontend that acknowledges departures; or says nothing, while it is mute; or
// says that it still routes there.
type fakeRouter struct {
	served *runtime.Served
	spoken chan struct{} // closed when it says something again
	routes atomic.Bool
	asked  atomic.Int64
	of     atomic.Uint64 // the instance that was last asked about
}

func (w *world) router(node string, mute bool) *fakeRouter {
	w.t.Helper()
	r := &fakeRouter{spoken: make(chan struct{})}
	if !mute {
		r.speak()
	}
	drt := w.c.Runtime(w.t, "", func(c *runtime.Config) { c.Node = node })
	served, err := drt.Serve(w.t.Context(), cluster.ComponentFrontend, cluster.EndpointDeparted, r.departed)
	if err != nil {
		w.t.Fatal(err)
	}
	r.served = served
	return r
}

// speak ends the silence of a mute router.
func (r *fakeRouter) speak() { close(r.spoken) }

func (r *fakeRouter) departed(ctx context.Context, q *requestplane.Request, send func(any) error) error {
	var req protocol.DepartedRequest
	if err := q.Decode(&req); err != nil {
		return err
	}
	r.of.Store(uint64(req.InstanceID))
	if r.asked.Add(1) == 1 || r.routes.Load() { // the first try always fails
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "still routes to it"}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.spoken:
	}
	return send(protocol.Departed(req))
}

// A drain goes on when all routers have acknowledged that the worker is gone, not before.
func TestRoutersAcknowledgeADrain(t *testing.T) {
	w := newWorld(t)
	quick, slow := w.router("host-1", false), w.router("host-2", true)
	w.tune = func(wk *Worker) { wk.waits.routers = time.Minute }
	d := w.start("worker-1", cluster.RoleDecode)
	id := d.term.Load().drt.ID()
	if err := d.Drain(t.Context(), time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one router has acknowledged", func() bool {
		st := d.Status().Drain
		return st != nil && st.Routers == 2 && st.Acknowledged == 1 && slices.Equal(st.Unacknowledged, []string{"host-2"})
	})
	eventually(t, "the worker left discovery", func() bool { return len(w.calls.Instances()) == 0 })
	if st := d.Status().Drain; st.Step != cluster.DrainDiscovery {
		t.Errorf("it went on to %s without the second router", st.Step)
	}
	slow.speak()
	if st := d.drained(t); st.Routers != 2 || st.Acknowledged != 2 || st.Unacknowledged != nil {
		t.Errorf("at the end: %+v", st)
	}
	for _, r := range []*fakeRouter{quick, slow} {
		if got := cluster.InstanceID(r.of.Load()); got != id {
			t.Errorf("asked about %s, the worker was %s", got, id)
		}
	}
}

// All routers of the store are asked, and only they.
func TestFarewellAsksRouters(t *testing.T) {
	w := newWorld(t)
	for _, node := range []string{"host-1", "host-2"} {
		w.router(node, false)
	}
	tm := &term{drt: w.c.Runtime(t, "worker-1"), log: w.c.Log}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	f := &departure{t: tm, id: tm.ID(), cancel: cancel, silent: map[cluster.InstanceID]string{}}
	f.run(ctx)
	if asked, acknowledged, silent := f.progress(); asked != 2 || acknowledged != 2 || len(silent) > 0 {
		t.Errorf("%d of %d routers have acknowledged, %v have not", acknowledged, asked, silent)
	}
}

// One that does not answer keeps nobody for long, and is named.
func TestADrainNamesRoutersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.router("host-1", false)
	w.router("host-2", true)
	w.tune = func(wk *Worker) { wk.waits.routers = time.Second }
	d := w.start("worker-1", cluster.RoleDecode)
	if err := d.Drain(t.Context(), time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
	if st := d.drained(t); st.Routers != 2 || !slices.Contains(st.Unacknowledged, "host-2") {
		t.Errorf("at the end: %+v", st)
	}
}

// A router that leaves discovery itself is waited for no longer; a drain that is taken
// back waits for none.
func TestRoutersThatLeaveAreNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	stays, leaves := w.router("host-1", true), w.router("host-2", true)
	w.tune = func(wk *Worker) { wk.waits.routers = time.Minute }
	d := w.start("worker-1", cluster.RoleDecode)
	d.drain(t)
	eventually(t, "nobody has acknowledged", func() bool {
		st := d.Status().Drain
		return st != nil && st.Routers == 2 && st.Acknowledged == 0
	})
	if err := d.Resume(t.Context(), d.Assignment()); err != nil {
		t.Fatal(err)
	}
	d.waitState(t, cluster.StateReady)

	stays.speak()
	leaves.routes.Store(true)
	d.drain(t)
	eventually(t, "one has acknowledged", func() bool {
		st := d.Status().Drain
		return st != nil && st.Acknowledged == 1
	})
	if err := leaves.served.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := d.drained(t); st.Routers != 1 || st.Acknowledged != 1 || st.Unacknowledged != nil {
		t.Errorf("at the end: %+v", st)
	}
}
