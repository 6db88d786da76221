package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/store"
)

func TestWorkerComesUp(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	st := n.reaches(cluster.StateReady)
	if st.Node != "id-1" || st.Role != cluster.RoleDecode || st.Model != "mock" || st.Generation != 1 || st.Restarts != 0 || st.InstanceID == 0 {
		t.Errorf("status %+v", st)
	}
	if _, lease := n.stored(); lease != st.InstanceID || lease == n.drt.ID() {
		t.Errorf("the status is under lease %s, the worker's is %s", lease, st.InstanceID)
	}
	if got := n.workers.statuses(); len(got) != 1 || got[0].State != cluster.StateReady {
		t.Errorf("statuses %+v", got)
	}
	// What is not for this node is none of its business.
	n.assignAs("worker-2", func(a *cluster.Assignment) { a.Node = "id-2" })
	n.assignAs("worker-3", func(a *cluster.Assignment) { a.Node = "" })
	n.assignAs("worker-10")
	n.assignAs("worker-4")
	patience.Until(t, "three workers run", func() bool { return len(n.workers.statuses()) == 3 })
	names := ""
	for _, st := range n.workers.statuses() {
		names += st.Name + " "
	}
	if names != "worker-1 worker-4 worker-10 " {
		t.Errorf("statuses of %s", names)
	}
}

// A drained worker is seen under the node's lease, says that it is safe to stop, and
// starts again when it is resumed.
func TestDrainAndResume(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	first := n.reaches(cluster.StateReady)
	n.assign(desire(cluster.DesireDrain))
	st := n.reaches(cluster.StateDrained)
	if st.Drain == nil || !st.Drain.Safe || st.Drain.Step != cluster.DrainLease || st.Drain.EndedAt.IsZero() || st.InstanceID != 0 || st.LeaseTTLMS != 0 {
		t.Errorf("drained: %+v, drain %+v", st, st.Drain)
	}
	if _, lease := n.stored(); lease != n.drt.ID() {
		t.Errorf("under lease %s, the node's is %s", lease, n.drt.ID())
	}
	if st.Stats.KVActive+st.Stats.KVCached+st.Stats.Running > 0 {
		t.Errorf("nothing runs, the gauges say %+v", st.Stats)
	}
	if _, _, err := n.mem.LeaseTTL(t.Context(), first.InstanceID); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("the worker's lease: %v, want it revoked", err)
	}
	// A change that asks for nothing new keeps it drained, with the same account.
	n.assign(func(a *cluster.Assignment) { a.DrainDeadline = time.Now().Add(time.Hour) })
	n.assignAs("worker-2")
	patience.Until(t, "worker-2 runs", func() bool { s := n.workers.statuses(); return len(s) == 2 && s[1].State == cluster.StateReady })
	if again, _ := n.stored(); again.State != cluster.StateDrained || !again.Drain.StartedAt.Equal(st.Drain.StartedAt) {
		t.Errorf("after another change: %+v, drain %+v", again, again.Drain)
	}
	n.assign(desire(cluster.DesireRun))
	resumed := n.reaches(cluster.StateReady)
	if resumed.InstanceID == first.InstanceID || resumed.InstanceID == 0 || resumed.Drain != nil {
		t.Errorf("resumed: %+v", resumed)
	}
}

// Whoever watches a worker sees a status all the time, through failures, drain and
// return: the key passes from lease to lease.
func TestStatusIsNeverMissing(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	w, err := n.mem.Watch(t.Context(), cluster.StatusKey(n.cfg.Namespace, "worker-1"))
	if err != nil {
		t.Fatal(err)
	}
	states := make(chan []cluster.State)
	go func() {
		var seen []cluster.State
		see := func(kv store.KV) {
			st, err := store.DecodeJSON[cluster.WorkerStatus](kv)
			if err != nil {
				t.Error(err)
			}
			seen = append(seen, st.State)
		}
		for ev := range w.Events() {
			switch {
			case ev.Type == store.Put:
				see(ev.KV)
			case ev.Type == store.Resync && len(ev.All) > 0: // several changes at once
				see(ev.All[0])
			case len(seen) > 0:
				t.Errorf("the status is gone after %v", seen)
			}
		}
		states <- seen
	}()
	n.loads.set(func(l *loads) { l.err = errors.New("out of luck") })
	n.assign()
	n.reaches(cluster.StateFailed)
	n.loads.set(func(l *loads) { l.err = nil })
	n.reaches(cluster.StateReady)
	n.assign(flip(cluster.RolePrefill))
	n.serves(cluster.RolePrefill)
	n.assign(desire(cluster.DesireDrain))
	n.reaches(cluster.StateDrained)
	n.assign(desire(cluster.DesireRun))
	n.reaches(cluster.StateReady)
	w.Close()
	if seen := <-states; !slices.Contains(seen, cluster.StateDrained) {
		t.Errorf("seen %v", seen)
	}
}

func restart(a *cluster.Assignment) { a.Starts++; a.Generation++ }

func flip(role cluster.Role) func(*cluster.Assignment) {
	return func(a *cluster.Assignment) { a.Role = role; a.Generation++ }
}

// serves waits until others see worker-1 ready in a role.
func (n *testNode) serves(role cluster.Role) (st cluster.WorkerStatus) {
	n.t.Helper()
	patience.Until(n.t, "worker-1 serves as "+string(role), func() bool {
		st, _ = n.stored()
		return st.State == cluster.StateReady && st.Role == role
	})
	return st
}

// Another role alone is no restart: the model stays loaded. It is one with anything else.
func TestFlip(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	first := n.reaches(cluster.StateReady)
	n.assign(flip(cluster.RolePrefill))
	st := n.serves(cluster.RolePrefill)
	if st.Generation != 2 || !st.StartedAt.Equal(first.StartedAt) || st.InstanceID == first.InstanceID || n.loads.count() != 1 {
		t.Errorf("%+v after %d loads", st, n.loads.count())
	}
	n.assign(flip(cluster.RoleDecode))
	if st = n.serves(cluster.RoleDecode); st.Generation != 3 || n.loads.count() != 1 {
		t.Errorf("%+v after %d loads", st, n.loads.count())
	}
	n.assign(flip(cluster.RolePrefill), func(a *cluster.Assignment) { a.Engine.MaxSeqs = 3 })
	if st = n.serves(cluster.RolePrefill); st.Generation != 4 || n.loads.count() != 2 {
		t.Errorf("%+v after %d loads", st, n.loads.count())
	}
	// What follows a flip is judged by what the worker is then.
	n.assign(restart)
	patience.Until(t, "it is restarted", func() bool { st, _ := n.stored(); return st.State == cluster.StateReady && st.Generation == 5 })
	n.assign(desire(cluster.DesireDrain))
	if st := n.reaches(cluster.StateDrained); st.Role != cluster.RolePrefill {
		t.Errorf("drained as %s", st.Role)
	}
}

func sleep(a *cluster.Assignment) { a.Desire, a.Sleep = cluster.DesireDrain, 1 }

func TestInstruction(t *testing.T) {
	now := cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode, Node: "a", Desire: cluster.DesireRun, Generation: 4}
	as := func(changes ...func(*cluster.Assignment)) cluster.Assignment {
		next := now
		for _, c := range changes {
			c(&next)
		}
		return next
	}
	again := func(a *cluster.Assignment) { a.Generation += 2 }
	for _, tc := range []struct {
		name string
		next cluster.Assignment
		want what
	}{
		{"the same", as(), goOn},
		{"a drain", as(desire(cluster.DesireDrain)), leave},
		{"a drain while it flips", as(desire(cluster.DesireDrain), flip(cluster.RolePrefill)), leave},
		{"a sleep", as(sleep), doze},
		{"a sleep while it flips", as(sleep, flip(cluster.RolePrefill)), leave},
		{"a sleep with another model", as(again, sleep, func(a *cluster.Assignment) { a.Model.Name = "x" }), leave},
		{"a level without a drain", as(func(a *cluster.Assignment) { a.Sleep = 1 }), goOn},
		{"another role", as(flip(cluster.RolePrefill)), turn},
		{"the vision tower alone", as(flip(cluster.RoleEncode)), leave},
		{"the flip is taken back", as(again), goOn},
		{"a restart", as(restart), leave},
		{"a rolling restart", as(again, func(a *cluster.Assignment) { a.Restarts++ }), leave},
		{"another model", as(again, func(a *cluster.Assignment) { a.Model.Name = "x" }), leave},
		{"another role and model", as(flip(cluster.RolePrefill), func(a *cluster.Assignment) { a.Model.Name = "x" }), leave},
		{"a note of the controller", as(func(a *cluster.Assignment) { a.Replace, a.Replaces = true, "worker-2" }), goOn},
		{"another model is taken back", as(again, func(a *cluster.Assignment) { a.Refused.Why = "it is broken" }), goOn},
	} {
		if got := instruction(now, tc.next); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A worker that is asked to go leaves nothing behind once its assignment is deleted.
func TestRemove(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	n.reaches(cluster.StateReady)
	n.assign(desire(cluster.DesireRemove), func(a *cluster.Assignment) { a.Generation = 1 })
	if st := n.reaches(cluster.StateStopped); st.Generation != 1 {
		t.Errorf("stopped: %+v", st)
	}
	n.unassign("worker-1")
	patience.Until(t, "the status is deleted", func() bool { st, _ := n.stored(); return st.Name == "" })
	patience.Until(t, "the runner is gone", func() bool { return len(n.workers.statuses()) == 0 })
	if kvs, _, err := n.mem.List(t.Context(), cluster.InstancePrefix(n.cfg.Namespace, "", "")); err != nil || len(kvs) != 0 {
		t.Errorf("instances are left: %v %v", kvs, err)
	}
}

// A new generation means a new run.
func TestGenerationChange(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	first := n.reaches(cluster.StateReady)
	n.assign(func(a *cluster.Assignment) { a.Generation, a.Model.Name = 2, "bigger" })
	var st cluster.WorkerStatus
	patience.Until(t, "the second run serves", func() bool {
		st, _ = n.stored()
		return st.State == cluster.StateReady && st.Generation == 2
	})
	if st.InstanceID == first.InstanceID || st.Model != "bigger" || n.loads.count() != 2 || st.Restarts != 0 {
		t.Errorf("%d loads, status %+v", n.loads.count(), st)
	}
}

// A worker that cannot start says why and when it tries again; when it can, it does.
func TestRestartBackOff(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.loads.set(func(l *loads) { l.err = errors.New("needs 9 GiB, 3 GiB are free") })
	n.assign()
	st := n.reaches(cluster.StateFailed)
	if !strings.Contains(st.Reason, "needs 9 GiB") || st.Restarts != 1 || st.InstanceID != 0 {
		t.Errorf("failed: %+v", st)
	}
	if wait := st.RetryAt.Sub(st.UpdatedAt); wait <= 0 || wait > backoffFirst {
		t.Errorf("retry in %s, want about %s", wait, backoffFirst)
	}
	if _, lease := n.stored(); lease != n.drt.ID() {
		t.Errorf("under lease %s, the node's is %s", lease, n.drt.ID())
	}
	var again cluster.WorkerStatus
	patience.Until(t, "it fails a second time", func() bool { again, _ = n.stored(); return again.State == cluster.StateFailed && again.Restarts == 2 })
	if wait := again.RetryAt.Sub(again.UpdatedAt); wait <= backoffFirst || wait > 2*backoffFirst {
		t.Errorf("second retry in %s, want about %s", wait, 2*backoffFirst)
	}
	if again.UpdatedAt.Before(st.RetryAt) {
		t.Errorf("it tried again at %s, before %s", again.UpdatedAt, st.RetryAt)
	}
	n.loads.set(func(l *loads) { l.err = nil })
	if ready := n.reaches(cluster.StateReady); ready.Restarts != 2 || ready.Reason != "" || !ready.RetryAt.IsZero() {
		t.Errorf("at last: %+v", ready)
	}
}

// What failed with one assignment says nothing of the next: it is tried at once, and as
// if nothing had failed before.
func TestNewAssignmentBeginsAnew(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.loads.set(func(l *loads) { l.err = errors.New("no such model") })
	n.assign()
	for generation := int64(2); generation < 5; generation++ {
		n.reaches(cluster.StateFailed)
		n.assign(func(a *cluster.Assignment) { a.Generation = generation })
		var st cluster.WorkerStatus
		patience.Until(t, "the next assignment fails too", func() bool {
			st, _ = n.stored()
			return st.State == cluster.StateFailed && st.Generation == generation
		})
		if wait := st.RetryAt.Sub(st.UpdatedAt); st.Restarts != 1 || wait > backoffFirst {
			t.Errorf("generation %d: %d restarts, retry in %s, want 1 and at most %s", generation, st.Restarts, wait, backoffFirst)
		}
	}
}

// An order is followed at once, also in the middle of a back-off.
func TestDrainWhileFailing(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.loads.set(func(l *loads) { l.err = errors.New("no such model") })
	n.assign()
	n.reaches(cluster.StateFailed)
	n.assign(desire(cluster.DesireDrain))
	st := n.reachesWithin(backoffFirst, cluster.StateDrained)
	if st.Restarts != 0 || !st.RetryAt.IsZero() || st.Reason != "" || !st.Drain.Safe {
		t.Errorf("drained: %+v", st)
	}
	loads := n.loads.count()
	time.Sleep(backoffFirst + 200*time.Millisecond) // the back-off passes, nothing may happen
	if n.loads.count() != loads {
		t.Error("a drained worker was started")
	}
}

// A worker whose engine breaks while it serves is started again.
func TestEngineBreaks(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	broken := make(chan struct{})
	n.loads.set(func(l *loads) {
		l.opts.Fail = func() error {
			select {
			case <-broken:
				return errors.New("the device is gone")
			default:
				return nil
			}
		}
	})
	n.assign()
	n.reaches(cluster.StateReady)
	n.loads.set(func(l *loads) { l.opts.Fail = nil }) // for the next run
	close(broken)
	patience.Until(t, "the engine gives up", func() bool { // one failed step is no reason to
		if _, err := n.generate(t.Context(), 4); err == nil {
			t.Error("a request on a broken engine succeeded")
		}
		st, _ := n.stored()
		return st.State == cluster.StateFailed
	})
	if st := n.reaches(cluster.StateFailed); !strings.Contains(st.Reason, "the device is gone") {
		t.Errorf("failed: %+v", st)
	}
	if st := n.reaches(cluster.StateReady); st.Restarts != 1 {
		t.Errorf("restarted: %+v", st)
	}
}

// generate runs a request of some tokens on worker-1.
func (n *testNode) generate(ctx context.Context, tokens int) (got []uint32, err error) {
	kvs, _, err := n.mem.List(ctx, cluster.InstancePrefix(n.cfg.Namespace, "decode", cluster.EndpointGenerate))
	if err != nil || len(kvs) != 1 {
		return nil, errors.Join(err, errors.New("not exactly one instance"))
	}
	inst, err := store.DecodeJSON[cluster.Instance](kvs[0])
	if err != nil {
		return nil, err
	}
	s, err := n.client.Call(ctx, inst.Transport.Address(), "r1", nil, protocol.PreprocessedRequest{
		RequestID: "r1", Model: "mock", ModelSum: "sha256:test", TokenIDs: []uint32{1, 2, 3}, Stop: protocol.StopConditions{MaxTokens: tokens},
	})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for {
		var o protocol.EngineOutput
		switch err := s.Recv(ctx, &o); {
		case errors.Is(err, io.EOF):
			return got, nil
		case err != nil:
			return got, err
		case o.Finish == protocol.FinishError:
			return got, errors.New(o.Error)
		}
		got = append(got, o.TokenIDs...)
	}
}

// What happens to other workers while one loads must not end it, nor make it deaf.
func TestChangesWhileLoading(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	gate, open := wait()
	defer open()
	n.loads.set(func(l *loads) { l.gate = gate })
	n.assign()
	n.reaches(cluster.StateLoading)
	patience.Until(t, "the load waits at the gate", func() bool { return n.loads.count() == 1 })
	n.loads.set(func(l *loads) { l.gate = nil })
	for range 5 {
		n.assignAs("worker-2", func(a *cluster.Assignment) { a.DrainDeadline = time.Now() })
		patience.Until(t, "the change was seen", func() bool { s := n.workers.statuses(); return len(s) == 2 && s[1].State == cluster.StateReady })
	}
	n.assign(func(a *cluster.Assignment) { a.DrainDeadline = time.Now().Add(time.Hour) }) // its own, and nothing new
	n.assignAs("worker-3")
	patience.Until(t, "worker-3 runs", func() bool { return len(n.workers.statuses()) == 3 })
	if st := n.workers.statuses()[0]; st.State != cluster.StateLoading {
		t.Fatalf("worker-1 is %s: %s", st.State, st.Reason)
	}
	open()
	if st := n.reachesWithin(5*time.Second, cluster.StateReady); st.Restarts != 0 {
		t.Errorf("it was restarted: %+v", st)
	}
	// And it hears what it is told.
	n.assign(desire(cluster.DesireDrain))
	n.reachesWithin(5*time.Second, cluster.StateDrained)
}

func TestDrainWhileLoading(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	gate, open := wait()
	defer open()
	n.loads.set(func(l *loads) { l.gate = gate })
	n.assign()
	n.reaches(cluster.StateLoading)
	patience.Until(t, "the load waits at the gate", func() bool { return n.loads.count() == 1 })
	// A change that asks for nothing does not make it deaf for one that does.
	n.loads.set(func(l *loads) { l.gate = nil })
	n.assign(func(a *cluster.Assignment) { a.DrainDeadline = time.Now() })
	n.assignAs("worker-2")
	patience.Until(t, "the change was seen", func() bool { return len(n.workers.statuses()) == 2 })
	n.loads.set(func(l *loads) { l.gate = gate })
	n.assign(desire(cluster.DesireDrain))
	if st := n.reachesWithin(5*time.Second, cluster.StateDrained); !st.Drain.Safe {
		t.Errorf("drained: %+v", st.Drain)
	}
	// Taken back before it was up again: the newest order counts.
	n.assign(desire(cluster.DesireRun))
	n.reaches(cluster.StateLoading)
	n.assign(desire(cluster.DesireDrain))
	n.assign(desire(cluster.DesireRun))
	n.loads.set(func(l *loads) { l.gate = nil })
	open()
	n.reachesWithin(5*time.Second, cluster.StateReady)
}

// A name that is used again waits for its former owner: never two of one name.
func TestNameIsUsedAgain(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	// Loading cannot be interrupted, as that of real models: the former owner leaves late.
	late := make(chan struct{}, 8)
	n.loads.set(func(l *loads) { l.gate = func(context.Context) error { <-late; return nil } })
	for i := range 8 {
		n.assign(func(a *cluster.Assignment) { a.Generation = int64(i + 1) })
		patience.Until(t, "it loads", func() bool { return n.loads.count() > i })
		n.unassign("worker-1") // as when the controller gives up a node that lives
		patience.Until(t, "it is told to leave", func() bool { return len(n.workers.statuses()) == 0 })
		late <- struct{}{}
	}
	close(late)
	n.assign(func(a *cluster.Assignment) { a.Generation = 99 })
	var st cluster.WorkerStatus
	patience.Until(t, "the last one serves", func() bool { st, _ = n.stored(); return st.State == cluster.StateReady && st.Generation == 99 })
	n.stop()
	n.loads.set(func(l *loads) {
		if l.most != 1 || l.now["worker-1"] != 0 {
			t.Errorf("%d at a time, %d are left", l.most, l.now["worker-1"])
		}
	})
}

// A worker that waits for its former owner leaves at once when it is not wanted any more,
// and who comes next waits for the former owner all the same.
func TestWaitForAFormerOwnerEnds(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	n.loads.set(func(l *loads) { l.gate = func(context.Context) error { <-gate; return nil } })
	n.assign(func(a *cluster.Assignment) { a.Generation = 1 })
	patience.Until(t, "the first one loads", func() bool { return n.loads.count() == 1 })
	n.unassign("worker-1")
	patience.Until(t, "the first one is told to leave", func() bool { return len(n.workers.statuses()) == 0 })
	n.assign(func(a *cluster.Assignment) { a.Generation = 2 })
	var second *runner
	patience.Until(t, "the second one waits", func() bool {
		n.workers.mu.Lock()
		defer n.workers.mu.Unlock()
		second = n.workers.runners["worker-1"]
		return second != nil
	})
	n.unassign("worker-1")
	select {
	case <-second.done:
	case <-time.After(long):
		t.Fatal("the second one waits on though it is not wanted")
	}
	n.assign(func(a *cluster.Assignment) { a.Generation = 3 })
	patience.Until(t, "the third one waits for the first", func() bool {
		n.workers.mu.Lock()
		defer n.workers.mu.Unlock()
		third := n.workers.runners["worker-1"]
		return third != nil && len(third.after) == 1
	})
	open()
	var st cluster.WorkerStatus
	patience.Until(t, "the third one serves", func() bool { st, _ = n.stored(); return st.State == cluster.StateReady && st.Generation == 3 })
	n.stop()
	n.loads.set(func(l *loads) {
		if l.most != 1 {
			t.Errorf("%d at a time", l.most)
		}
	})
}

// The status of a worker at rest survives the loss of the node's lease.
func TestRestUnderANewLease(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign(desire(cluster.DesireDrain))
	n.reaches(cluster.StateDrained)
	old := n.drt.ID()
	if err := n.mem.RevokeLease(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	within(t, publishEvery-time.Second, "the status is back under the new lease, before it is due anyway", func() bool {
		st, lease := n.stored()
		return st.State == cluster.StateDrained && lease != 0 && lease != old
	})
}

// While the store is away a drained worker keeps trying to say so.
func TestRestDuringAnOutage(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	n.assign()
	n.reaches(cluster.StateReady)
	n.assign(desire(cluster.DesireDrain))
	n.mem.SetOutage(true)
	defer n.mem.SetOutage(false)
	patience.Until(t, "the drain ends without the store", func() bool {
		here := n.workers.statuses()
		return len(here) == 1 && here[0].State == cluster.StateDrained
	})
	n.mem.SetOutage(false)
	if st := n.reachesWithin(publishEvery-time.Second, cluster.StateDrained); !st.Drain.Safe {
		t.Errorf("drained: %+v", st.Drain)
	}
}

func TestWorkerWithoutALogFile(t *testing.T) {
	t.Parallel()
	n := startTestNode(t)
	if err := os.RemoveAll(n.dir.LogDir()); err != nil {
		t.Fatal(err)
	}
	n.assign()
	n.reaches(cluster.StateReady)
	n.assign(desire(cluster.DesireRemove))
	n.reaches(cluster.StateStopped)
}
