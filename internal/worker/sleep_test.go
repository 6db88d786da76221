package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/served"
)

// sleepyEngine is a server that can sleep.
type sleepyEngine struct {
	*otherEngine

	mu     sync.Mutex
	asleep bool
	cannot error
	orders []string
}

func (e *sleepyEngine) CanSleep(context.Context, int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cannot
}

func (e *sleepyEngine) Sleep(_ context.Context, level int) error {
	return e.turn(true, fmt.Sprintf("sleep %d", level))
}

func (e *sleepyEngine) Wake(_ context.Context, level int) error {
	return e.turn(false, fmt.Sprintf("wake %d", level))
}

func (e *sleepyEngine) turn(asleep bool, order string) error {
	if l, _ := e.Load(context.Background()); *l.Running > 0 {
		order += " while it runs requests"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asleep == asleep {
		order += " again"
	}
	e.asleep, e.orders = asleep, append(e.orders, order)
	return nil
}

func (e *sleepyEngine) Asleep(context.Context) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asleep, nil
}

// is has somebody else put it to sleep, or wake it.
func (e *sleepyEngine) is(asleep bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asleep = asleep
}

func (e *sleepyEngine) got() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.orders)
}

func newSleepy() *sleepyEngine {
	e := &sleepyEngine{otherEngine: &otherEngine{hold: make(chan struct{})}}
	close(e.hold)
	return e
}

// sleepyWorker is a worker of the engine, with what is asked of it at its start.
func sleepyWorker(e *sleepyEngine, change func(*cluster.Assignment)) func(*Config) {
	return func(c *Config) {
		outsideWorker(e.otherEngine, &atomic.Int32{}, nil)(c)
		load := c.Load
		c.Load = func(ctx context.Context, p func(float64)) (*Loaded, error) {
			l, err := load(ctx, p)
			l.Server.Engine, l.Server.Waits = e, served.DefaultWaits
			l.Server.Waits.Health = 20 * time.Millisecond
			return l, err
		}
		c.Assignment.Desire = cluster.DesireRun
		if change != nil {
			change(&c.Assignment)
		}
	}
}

// asks returns the worker's assignment with another desire.
func asks(r *running, desire cluster.Desire, level int) cluster.Assignment {
	as := r.Assignment()
	as.Desire, as.Sleep, as.Asleep = desire, level, 0
	return as
}

func inState(r *running, s cluster.State, level int) func() bool {
	return func() bool { st := r.Status(); return st.State == s && st.Sleep == level }
}

func served1(t *testing.T, w *world) {
	t.Helper()
	got := w.generate(t.Context(), "worker-1", protocol.PreprocessedRequest{RequestID: "a", TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 4}})
	if got.err != nil || len(got.tokens) != 1 {
		t.Errorf("%+v", got)
	}
}

// A worker sleeps once its server has nothing to do, leaves discovery and the index meanwhile, and
// comes back as another instance.
func TestSleepAndWake(t *testing.T) {
	w := newWorld(t)
	e := newSleepy()
	r := w.start("worker-1", cluster.RoleDecode, sleepyWorker(e, nil))
	eventually(t, "its cache is told", func() bool { return r.Status().KVNext == 1 })
	before := r.Status()
	e.says(1)
	if err := r.Sleep(t.Context(), asks(r, cluster.DesireDrain, 2)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it waits for the server", func() bool {
		d := r.Status().Drain
		return d != nil && d.Step == cluster.DrainOutgoing
	})
	if got := e.got(); len(got) > 0 {
		t.Fatalf("%q while the server runs a request", got)
	}
	e.says(0)
	eventually(t, "it sleeps", inState(r, cluster.StateSleeping, 2))
	st := r.Status()
	if st.Drain == nil || !st.Drain.Safe || st.InstanceID == before.InstanceID || st.KVNext <= before.KVNext {
		t.Errorf("%+v", st)
	}
	eventually(t, "nobody finds it", func() bool { return len(w.calls.Instances()) == 0 })

	if err := r.Resume(t.Context(), asks(r, cluster.DesireRun, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", inState(r, cluster.StateReady, 0))
	served1(t, w)
	if got := e.got(); !slices.Equal(got, []string{"sleep 2", "wake 2"}) {
		t.Errorf("%q", got)
	}
}

// What is asked of a worker that starts counts, and so does what its server is then.
func TestSleepOverRestarts(t *testing.T) {
	for name, tc := range map[string]struct {
		desire        cluster.Desire
		level, asleep int  // of the assignment
		found         bool // asleep
		state         cluster.State
		sleep         int
		orders        []string
	}{
		"awake, to sleep":           {cluster.DesireDrain, 1, 0, false, cluster.StateSleeping, 1, []string{"sleep 1"}},
		"asleep, to sleep":          {cluster.DesireDrain, 1, 1, true, cluster.StateSleeping, 1, nil},
		"asleep unknown, to sleep":  {cluster.DesireDrain, 1, 0, true, cluster.StateSleeping, 2, nil},
		"asleep, to run":            {cluster.DesireRun, 0, 2, true, cluster.StateReady, 0, []string{"wake 2"}},
		"woken by others, to run":   {cluster.DesireRun, 0, 2, false, cluster.StateReady, 0, nil},
		"asleep by others, to run":  {cluster.DesireRun, 0, 0, true, cluster.StateSleeping, 0, nil},
		"a level of an earlier one": {cluster.DesireRun, 2, 0, false, cluster.StateReady, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := newSleepy()
			e.is(tc.found)
			r := w.begin("worker-1", cluster.RoleDecode, sleepyWorker(e, func(a *cluster.Assignment) {
				a.Desire, a.Sleep, a.Asleep = tc.desire, tc.level, tc.asleep
			}))
			eventually(t, "it is "+string(tc.state), inState(r, tc.state, tc.sleep))
			if got := e.got(); !slices.Equal(got, tc.orders) {
				t.Errorf("%q, want %q", got, tc.orders)
			}
		})
	}
}

// A drain ends a worker that sleeps, and not the sleep.
func TestDrainOfASleepingWorker(t *testing.T) {
	w := newWorld(t)
	e := newSleepy()
	e.says(1) // for somebody else
	r := w.begin("worker-1", cluster.RoleDecode, sleepyWorker(e, func(a *cluster.Assignment) { a.Desire, a.Sleep = cluster.DesireDrain, 1 }))
	eventually(t, "it waits for the server", inState(r, cluster.StateDraining, 0))
	e.says(0)
	eventually(t, "it sleeps", inState(r, cluster.StateSleeping, 1))
	if err := r.Drain(t.Context(), time.Time{}, false); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; !errors.Is(err, ErrDrained) {
		t.Errorf("%v", err)
	}
	r.ended <- ErrDrained
	if got := e.got(); !slices.Equal(got, []string{"sleep 1"}) {
		t.Errorf("%q", got)
	}
}

// A server that somebody else has put to sleep gets no requests, and those at it go elsewhere. It
// is not woken without an order.
func TestSleepBySomebodyElse(t *testing.T) {
	w := newWorld(t)
	e := newSleepy()
	e.hold = make(chan struct{})
	r := w.start("worker-1", cluster.RoleDecode, sleepyWorker(e, nil))
	done := make(chan result, 1)
	go func() {
		done <- w.generate(t.Context(), "worker-1", protocol.PreprocessedRequest{RequestID: "a", TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 4}})
	}()
	eventually(t, "the request is at the server", func() bool { return r.Status().Stats.Running == 1 })
	e.is(true)
	var remote *requestplane.RemoteError
	if got := <-done; !errors.As(got.err, &remote) || remote.Kind != requestplane.KindUnavailable {
		t.Errorf("%+v", got)
	}
	eventually(t, "it sleeps", inState(r, cluster.StateSleeping, 0))
	if st := r.Status(); st.Reason != foundAsleep || st.Drain != nil {
		t.Errorf("%+v", st)
	}
	close(e.hold)
	if err := r.Resume(t.Context(), asks(r, cluster.DesireRun, 0)); err != nil { // another change of the assignment
		t.Fatal(err)
	}
	e.is(false)
	eventually(t, "it serves again", inState(r, cluster.StateReady, 0))
	served1(t, w)

	e.is(true)
	eventually(t, "it sleeps again", inState(r, cluster.StateSleeping, 0))
	wake := asks(r, cluster.DesireRun, 0)
	wake.Asleep = cluster.SleepDeep
	if err := r.Resume(t.Context(), wake); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves when woken", inState(r, cluster.StateReady, 0))
	served1(t, w)
	if got := e.got(); !slices.Equal(got, []string{"wake 2"}) {
		t.Errorf("%q", got)
	}

	// Its own sleep, ended by somebody else, is told.
	if err := r.Sleep(t.Context(), asks(r, cluster.DesireDrain, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it sleeps as ordered", inState(r, cluster.StateSleeping, 1))
	e.is(false)
	eventually(t, "it says that it was woken", func() bool { return r.Status().Reason == foundAwake })
	if st := r.Status(); st.State != cluster.StateSleeping || st.Sleep != 0 {
		t.Errorf("%+v", st)
	}
}

// A worker whose server cannot sleep serves on, and says why, until that is not asked for.
func TestSleepDeclined(t *testing.T) {
	w := newWorld(t)
	e := newSleepy()
	e.cannot = errors.New("it takes --enable-sleep-mode")
	for name, change := range map[string]func(*Config){"worker-1": sleepyWorker(e, nil), "worker-2": nil} {
		if change == nil {
			change = func(*Config) {} // the built-in engine
		}
		r := w.start(name, cluster.RoleDecode, change)
		if err := r.Sleep(t.Context(), asks(r, cluster.DesireDrain, 1)); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" declines", func() bool { return r.Status().Declined.Why != "" })
		if st := r.Status(); st.State != cluster.StateReady || st.Declined.Generation != st.Generation {
			t.Errorf("%s: %+v", name, st)
		}
		if err := r.Resume(t.Context(), asks(r, cluster.DesireRun, 0)); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" forgets that", func() bool { return r.Status().Declined == (cluster.Declined{}) })
	}
	if got := e.got(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// An order to sleep is taken back while requests still run.
func TestSleepTakenBack(t *testing.T) {
	w := newWorld(t)
	e := newSleepy()
	r := w.start("worker-1", cluster.RoleDecode, sleepyWorker(e, nil))
	e.says(1)
	if err := r.Sleep(t.Context(), asks(r, cluster.DesireDrain, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it drains", inState(r, cluster.StateDraining, 0))
	if err := r.Resume(t.Context(), asks(r, cluster.DesireRun, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", inState(r, cluster.StateReady, 0))
	served1(t, w)
	if got := e.got(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}
