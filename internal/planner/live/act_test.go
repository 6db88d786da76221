package live

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/failpoint"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

func (w *world) plan() planner.Plan {
	t, _ := w.declared()
	return planner.Plan{Prefill: t.Prefill, Decode: t.Decode}
}

// carried reports whether all workers, and their pods, are as declared.
func (w *world) carried() bool {
	if w.kube != nil && len(w.kube.pods) != w.plan().Prefill+w.plan().Decode {
		return false
	}
	return !slices.ContainsFunc(w.workers, func(x *pretended) bool { return x.left != 0 })
}

// A load that rises brings workers, and takes them back when it falls; each change is signed, told with its result,
// and leaves the rest of the topology as it was. How long a start takes is learned.
func TestActs(t *testing.T) {
	inWorlds(t, 1, 1, func(t *testing.T, w *world) {
		defer w.plans("node-1", nil)()
		w.starts = 40
		w.live(60)
		if w.plan() != (planner.Plan{Prefill: 1, Decode: 1}) {
			t.Fatalf("at rest: %v", w.plan())
		}
		w.rate = 50
		w.until("more workers", 60, func() bool { return w.plan().Prefill > 1 })
		topo, _ := w.declared()
		if topo.UpdatedBy != "planner@node-1" || topo.Generation != 2 || !strings.HasPrefix(topo.Reason, "planner: 1P1D -> ") || topo.UpdatedAt.IsZero() || topo.Model.Name != "m" {
			t.Errorf("%+v", topo)
		}
		r, _, err := store.GetJSON[cluster.Revision](w.ctx, w.store, cluster.HistoryKey(ns, 1))
		if err != nil || r.Topology.UpdatedBy != "ann@host" || r.Topology.Prefill != 1 {
			t.Errorf("what was declared before: %+v %v", r, err)
		}
		if c := w.report().Changes; len(c) != 1 || c[0].Result != planner.ResultUnderWay || c[0].Node != "node-1" || c[0].Generation != 2 || c[0].From.Prefill != 1 || len(c[0].Actions) == 0 {
			t.Errorf("%+v", c)
		}
		w.until("it is carried out", 60, func() bool { c := w.report().Changes; return len(c) == 1 && c[0].Result == planner.ResultDone })
		if c := w.report().Changes[0]; c.Ended.Sub(c.Time) < 40*time.Second || c.Ended.Sub(c.Time) > 50*time.Second {
			t.Errorf("done after %s", c.Ended.Sub(c.Time))
		}
		w.live(10)
		if v, ok := w.heardLast().Decision.Number(planner.ReasonLookAhead); !ok || math.Abs(v-(2*40+5)) > 4 {
			t.Errorf("a start takes 40 s: look-ahead %v", v)
		}
		w.rate = 4
		w.until("fewer workers", 600, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) && w.carried() })
		w.live(10)
		for _, c := range w.report().Changes {
			if c.Result != planner.ResultDone {
				t.Errorf("%+v", c)
			}
		}
		w.set(func() { w.settings.Planner.Prefill.Min = 0 })
		w.until("decode workers do all", 200, func() bool { return w.plan() == (planner.Plan{Decode: 1}) && w.carried() })
		if kvs, _, err := w.store.List(w.ctx, cluster.HistoryPrefix(ns)); err != nil || len(kvs) != 1 {
			t.Errorf("generations of the planner are kept: %d, %v", len(kvs), err)
		}
	})
}

func (w *world) heardLast() planner.Report {
	told := w.lab.heard()
	return told[len(told)-1]
}

// Who scales by hand wins: what they made is the base, nothing is changed for the cool-down, and it is said.
func TestByHand(t *testing.T) {
	inWorlds(t, 1, 1, func(t *testing.T, w *world) {
		defer w.plans("node-1", nil)()
		w.live(60)
		w.scale(1, 4)
		at := time.Now()
		w.live(6)
		if d := w.heardLast().Decision; d.Refusal != planner.RefusedByHand || !strings.Contains(d.Detail, "ann@host changed the topology (dynctl scale)") {
			t.Errorf("%s %s", d.Refusal, d.Detail)
		}
		w.until("it goes on from there", 300, func() bool { return w.plan().Decode < 4 })
		if took := time.Since(at); took < 60*time.Second || w.plan() != (planner.Plan{Prefill: 1, Decode: 3}) {
			t.Errorf("after %s: %v", took, w.plan())
		}
		// A worker that somebody drained is theirs.
		w.until("it is carried out", 60, w.carried)
		a := w.workers[0]
		w.put(cluster.AssignmentKey(ns, a.name), cluster.Assignment{Name: a.name, Role: a.role, Model: cluster.ModelSpec{Name: "m"}, Node: a.node, Desire: cluster.DesireDrain})
		w.live(6)
		before := len(w.writes)
		w.rate = 50
		w.live(60)
		if d := w.heardLast().Decision; d.Refusal != planner.RefusedByHand || !strings.Contains(d.Detail, a.name+" is drained") || len(w.writes) != before {
			t.Errorf("%s %s", d.Refusal, d.Detail)
		}
	})
}

// A worker that never gets ready is named, given up and not started again and again.
func TestNeverReady(t *testing.T) {
	inWorlds(t, 1, 1, func(t *testing.T, w *world) {
		defer w.plans("node-1", nil)()
		w.live(60)
		w.rate, w.never = 36, true
		w.until("a worker starts", 60, func() bool { return w.plan().Prefill > 1 })
		w.until("it is given up", 200, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) })
		w.live(6)
		changes := w.report().Changes
		if n := len(changes); n < 2 || changes[n-2].Result != planner.ResultLate || changes[n-1].Cause != planner.CauseGiveUp || !strings.Contains(changes[n-1].Detail, "worker-3") {
			t.Errorf("%+v", changes)
		}
		w.until("it is carried out", 60, w.carried)
		w.live(20)
		if d := w.heardLast().Decision; d.Refusal != planner.RefusedBackOff || !strings.Contains(d.Detail, "worker-3 did not get ready") {
			t.Errorf("%s %s", d.Refusal, d.Detail)
		}
		before := len(w.writes)
		w.live(1800)
		if n := len(w.writes) - before; n == 0 || n > 8 {
			t.Errorf("%d changes within half an hour", n)
		}
	})
}

// A budget below what runs is kept at once, the way back is by draining.
func TestBudgetIsLowered(t *testing.T) {
	inWorlds(t, 2, 3, func(t *testing.T, w *world) {
		defer w.plans("node-1", nil)()
		w.rate = 40
		w.live(60)
		before := len(w.writes)
		w.set(func() { w.settings.Planner.Devices, w.obeys = 2, false })
		w.live(20)
		if n := len(w.writes) - before; n != 1 {
			t.Errorf("%d changes before the controller has followed", n)
		}
		w.set(func() { w.obeys = true })
		w.until("two workers are left", 20, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) && w.carried() })
		w.live(200)
		if w.plan() != (planner.Plan{Prefill: 1, Decode: 1}) {
			t.Errorf("%v", w.plan())
		}
	})
}

// A leader that stops between its look at who leads and its write, and goes on when another leads, writes nothing: neither
// when the next one has only taken over, nor when it has acted.
func TestOldLeaderWakesUp(t *testing.T) {
	for name, acts := range map[string]bool{"the next one has taken over": false, "the next one has acted": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 1, func(w *world) {
				woken, asleep := make(chan struct{}), make(chan struct{})
				claims := 0
				defer w.plans("node-1", func(key string) {
					if key != cluster.TopologyKey(ns) {
						return
					}
					if claims++; claims == 2 { // the first one is the claim
						close(asleep)
						<-woken
					}
				})()
				w.live(60)
				w.rate = 50
				for i := 0; ; i++ {
					if i > 60 {
						t.Fatal("it never acts")
					}
					w.live(1)
					select {
					case <-asleep:
					default:
						continue
					}
					break
				}
				before := w.plan()
				if !acts {
					w.rate = 4
				}
				defer w.plans("node-2", nil)()
				w.live(12) // it takes over
				if acts {
					w.until("the next one acts", 120, func() bool { return w.plan() != before })
				}
				between, writes := w.plan(), len(w.writes)
				close(woken)
				w.live(20)
				if acts == (between == before) || w.plan() != between || len(w.writes) != writes {
					t.Errorf("%v before, %v by the next leader, %v when the old one woke up", before, between, w.plan())
				}
				for _, x := range w.writes {
					if x.by != "node-2" {
						t.Errorf("%s wrote", x.by)
					}
				}
			})
		})
	}
}

// A leader that dies in the middle of a change leaves one that the next completes and tells.
func TestKilledInTheMiddle(t *testing.T) {
	inWorlds(t, 1, 1, func(t *testing.T, w *world) {
		dead := make(chan struct{})
		stop := w.plans("node-1", nil)
		disarm, err := failpoint.Arm("planner.declared", 1, func() { close(dead); <-w.ctx.Done() })
		if err != nil {
			t.Fatal(err)
		}
		defer disarm()
		w.live(60)
		w.rate = 50
		w.until("it acts", 60, func() bool { return w.plan().Prefill > 1 })
		<-dead
		if c := w.report().Changes; len(c) != 0 {
			t.Fatalf("told: %+v", c)
		}
		defer func() { go stop() }() // it ends with the world
		defer w.plans("node-2", nil)()
		w.until("the next one tells it", 120, func() bool {
			c := w.report().Changes
			return len(c) > 0 && c[0].Node == "node-1" && c[0].Result == planner.ResultDone && strings.Contains(c[0].Detail, "1P1D -> ")
		})
		w.rate = 4
		w.until("and goes on", 600, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) })
	})
}

// Requests for another model are no load, and a frontend that does not tell them apart tells nothing.
func TestOtherModels(t *testing.T) {
	inWorld(t, 1, 1, func(w *world) {
		defer w.plans("node-1", nil)()
		w.live(60)
		w.other = 80
		w.live(60)
		if r := w.heardLast(); len(w.writes) != 0 || r.Observed.Rate != 4 || r.Model != "m" {
			t.Errorf("%s: %v of %s, %d writes", r.Decision.Refusal, r.Observed.Rate, r.Model, len(w.writes))
		}
		w.former = true
		w.live(10)
		if d := w.heardLast().Decision; d.Refusal != planner.RefusedStaleData || !strings.Contains(d.Detail, "node-1 does not tell the load of each model") {
			t.Errorf("%s %s", d.Refusal, d.Detail)
		}
	})
}

// With the virtual connector numbers are told to others, who say when they have followed; the next ones wait for that.
func TestVirtualConnector(t *testing.T) {
	inWorld(t, 1, 1, func(w *world) {
		get := func(name string) string {
			kv, _ := w.store.Get(w.ctx, "v1/"+ns+"/planner/"+name)
			return string(kv.Value)
		}
		w.settings.Connector = ConnectorVirtual
		stop := w.plans("node-1", nil)
		w.live(60)
		if got := get("decision_id"); got != "" {
			t.Fatalf("decision %s at rest", got)
		}
		w.rate = 50
		w.until("a decision", 60, func() bool { return get("decision_id") == "0" })
		if p := get("num_prefill_workers"); p == "1" || get("num_decode_workers") == "" {
			t.Errorf("%s prefill and %s decode workers", p, get("num_decode_workers"))
		}
		w.rate = 4
		w.live(90)
		d := w.heardLast().Decision
		if get("decision_id") != "0" || d.Refusal != planner.RefusedUnfinished || !strings.Contains(d.Detail, "Decision 0 has not been carried out") || !strings.Contains(d.Detail, "scaled_decision_id is -1") {
			t.Errorf("decision %s, %s: %s", get("decision_id"), d.Refusal, d.Detail)
		}
		stop()
		w.rate = 50
		defer w.plans("node-2", nil)() // the next leader goes on with the numbers that there are
		follow := func() {
			n := func(name string) (n int) {
				if _, err := fmt.Sscan(get(name), &n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			w.scale(n("num_prefill_workers"), n("num_decode_workers"))
			w.until("it is carried out", 60, w.carried)
			if _, err := w.store.Put(w.ctx, "v1/"+ns+"/planner/scaled_decision_id", []byte(get("decision_id"))); err != nil {
				t.Fatal(err)
			}
		}
		follow()
		w.live(20)
		w.rate = 4
		w.until("the next decision", 400, func() bool { return get("decision_id") == "1" })
		follow()
		w.live(6)
		c := w.report().Changes
		if len(c) != 2 || *c[0].DecisionID != 0 || *c[1].DecisionID != 1 || c[1].Result != planner.ResultDone || c[0].Result != planner.ResultDone || len(w.writes) != 0 {
			t.Errorf("%+v", c)
		}
		// One that is never carried out is not waited for for ever.
		w.rate = 50
		w.until("another decision", 60, func() bool { return get("decision_id") == "2" })
		w.rate = 120
		told := time.Now()
		w.until("one after the time-out", 400, func() bool { return get("decision_id") == "3" })
		if wait := time.Since(told); wait < 2*time.Minute {
			t.Errorf("after %s", wait)
		}
	})
}

// What transfers take reaches the evaluator, and so do the tokens of a step.
func TestEvaluatorKnowsTheWorkers(t *testing.T) {
	speed := NewSpeed()
	g := NewGatherer(t0, speed)
	st := status("worker-1", cluster.RolePrefill, 0, 1, 0)
	g.Worker(t0, st)
	g.Observe(t0, view(st))
	e := &evaluator{speed: speed}
	if q := e.queueing(); q.Handover != 0 || q.Chunk != 512 {
		t.Errorf("%+v", q)
	}
	for i := 1; i <= 3; i++ {
		tell(g, 5*i-4, 5*i, 1)
		st.UpdatedAt = at(float64(5 * i))
		st.Stats.TransfersTotal += 10
		st.Stats.TransferNanosTotal += 10 * uint64(i) * 1_000_000
		g.Worker(st.UpdatedAt, st)
		g.Observe(st.UpdatedAt, view(st))
	}
	want := (0.81*1 + 0.9*2 + 3) / (0.81 + 0.9 + 1)
	if q := e.queueing(); math.Abs(q.Handover.Seconds()*1000-want) > 1e-3 {
		t.Errorf("%s, want %v ms", q.Handover, want)
	}
}
