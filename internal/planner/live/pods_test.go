package live

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/planner"
)

// pods returns how many pods are wanted, as a plan.
func (c *cloud) plan() planner.Plan {
	return planner.Plan{Prefill: c.replicas(cluster.RolePrefill), Decode: c.replicas(cluster.RoleDecode)}
}

// settled reports whether workers and pods are as declared.
func (w *world) settled() bool {
	return w.carried() && w.kube.plan() == w.plan() && len(w.kube.ours()) == 0
}

func (w *world) refusal(want planner.Refusal, detail string) {
	w.t.Helper()
	if d := w.heardLast().Decision; d.Refusal != want || !strings.Contains(d.Detail, detail) {
		w.t.Errorf("%s %q, want %s with %q", d.Refusal, d.Detail, want, detail)
	}
}

// A plan brings the pods that its workers need, which are named until they are up, and takes them away when
// their workers have left. That a node goes with its pod is no loss.
func TestPods(t *testing.T) {
	inCloud(t, 1, 1, func(w *world) {
		var drained []string // when the topology was changed last
		defer w.plans("node-1", func(key string) {
			if key == cluster.TopologyKey(ns) {
				drained = w.kube.ours()
			}
		})()
		w.live(60)
		if !w.settled() {
			t.Fatalf("at rest: pods %v for %v", w.kube.plan(), w.plan())
		}
		w.kube.slow = true
		w.rate = 50
		w.until("more workers", 60, func() bool { return w.plan().Prefill > 1 })
		if w.kube.plan() != w.plan() {
			t.Errorf("pods %v for %v", w.kube.plan(), w.plan())
		}
		w.live(10)
		w.refusal(planner.RefusedUnfinished, "dynctl-prefill-1 of statefulsets.apps/dynctl-prefill are not up")
		w.kube.slow = false
		w.until("they serve", 60, w.settled)
		w.live(10)
		if c := w.report().Changes; len(c) != 1 || c[0].Result != planner.ResultDone {
			t.Errorf("%+v", c)
		}
		w.rate = 4
		before := w.plan()
		w.until("one leaves", 300, func() bool { return w.plan() != before })
		if len(drained) != 1 {
			t.Errorf("drained before the controller chose: %v", drained)
		}
		w.until("its pod goes", 30, w.settled)
		at := len(w.lab.heard())
		w.live(20)
		for _, r := range w.lab.heard()[at:] {
			if r.Decision.Refusal == planner.RefusedNodeLost {
				t.Errorf("%s", r.Explanation[0])
			}
		}
		w.until("all leave", 600, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) && w.settled() })
		for _, c := range w.report().Changes {
			if c.Result != planner.ResultDone || slices.ContainsFunc(c.Actions, func(a planner.Action) bool { return a.Kind == planner.ActionFlip }) {
				t.Errorf("%+v", c)
			}
		}
	})
}

// Workers whose pods do not get up are given up, and the pods with them.
func TestPodsNeverUp(t *testing.T) {
	inCloud(t, 1, 1, func(w *world) {
		defer w.plans("node-1", nil)()
		w.live(60)
		w.rate, w.kube.slow = 36, true
		w.until("a worker is wanted", 60, func() bool { return w.plan().Prefill > 1 && w.kube.plan().Prefill > 1 })
		w.until("it is given up", 200, func() bool { return w.plan() == (planner.Plan{Prefill: 1, Decode: 1}) })
		w.until("its pod, too", 60, w.settled)
		if c := w.report().Changes; len(c) < 2 || c[len(c)-2].Result != planner.ResultLate || c[len(c)-1].Cause != planner.CauseGiveUp {
			t.Errorf("%+v", c)
		}
	})
}

// Workers on pods that go move before, and the pods are kept for as long as one is there.
func TestPodsWaitForWorkers(t *testing.T) {
	inCloud(t, 1, 3, func(w *world) {
		w.set(func() { w.settings.Planner.Decode.Min = 3 })
		defer w.plans("node-1", nil)()
		w.live(30)
		w.obeys = false
		w.scale(1, 2) // what a person declares, pods follow, too
		w.live(20)
		if w.kube.plan().Decode != 3 || !slices.Equal(w.kube.ours(), []string{"dynctl-decode-2"}) {
			t.Errorf("pods %v, drained %v", w.kube.plan(), w.kube.ours())
		}
		if waits := w.heardLast().Decision; !strings.Contains(waits.Detail, "ann@host changed the topology") {
			t.Errorf("%+v", waits)
		}
		w.obeys = true
		w.until("the pod goes", 40, w.settled)
		w.scale(1, 4)
		w.until("pods come", 40, func() bool { return w.settled() && w.kube.plan().Decode == 4 })
		// The order is taken back before the pod has gone.
		w.obeys = false
		w.scale(1, 3)
		w.live(6)
		if !slices.Equal(w.kube.ours(), []string{"dynctl-decode-3"}) {
			t.Errorf("drained %v", w.kube.ours())
		}
		w.scale(1, 4)
		w.live(6)
		if len(w.kube.ours()) != 0 || w.kube.plan().Decode != 4 {
			t.Errorf("drained %v", w.kube.ours())
		}
		// Somebody else's drain is theirs.
		w.put(cluster.CordonKey(ns, "dynctl-decode-3"), cluster.Cordon{Node: "dynctl-decode-3", By: "ann@host"})
		w.live(6)
		if !w.kube.cordoned("dynctl-decode-3") {
			t.Error("it is taken back")
		}
		// What planners have drained is given back when they act no more.
		w.scale(1, 2)
		w.live(6)
		if !slices.Equal(w.kube.ours(), []string{"dynctl-decode-2"}) {
			t.Errorf("drained %v", w.kube.ours())
		}
		w.set(func() { w.settings.Planner.Mode = planner.ModeAdvise })
		w.live(6)
		if len(w.kube.ours()) != 0 || !w.kube.cordoned("dynctl-decode-3") || w.kube.plan().Decode != 4 {
			t.Errorf("drained %v, pods %v", w.kube.ours(), w.kube.plan())
		}
		w.set(func() { w.settings.Planner.Mode = planner.ModeOff })
		w.live(6)
		before := w.kube.server.Requests(http.MethodPatch, "statefulsets/scale")
		w.live(30)
		if n := w.kube.server.Requests(http.MethodPatch, "statefulsets/scale"); n != before {
			t.Errorf("%d writes while it is off", n-before)
		}
		w.set(func() { w.settings.Planner.Mode = planner.ModeAct })
		w.live(18)
		if !slices.Equal(w.kube.ours(), []string{"dynctl-decode-2"}) {
			t.Errorf("drained %v when it acts again", w.kube.ours())
		}
		w.set(func() { w.settings.Planner.Mode = planner.ModeOff })
		w.live(6)
		before = w.kube.server.Requests(http.MethodPatch, "statefulsets/scale")
		w.live(30)
		if n := w.kube.server.Requests(http.MethodPatch, "statefulsets/scale"); n != before {
			t.Errorf("%d writes after it has acted", n-before)
		}
	})
}

// Who scales pods by hand wins for the cool-down, and is told of.
func TestPodsByHand(t *testing.T) {
	for name, n := range map[string]int{"more": 4, "fewer": 1} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, 1, 2, func(w *world) {
				w.set(func() { w.settings.Planner.Decode.Min = 2 })
				defer w.plans("node-1", nil)()
				w.live(60)
				w.kube.scale(cluster.RoleDecode, n)
				at := time.Now()
				w.live(6)
				w.refusal(planner.RefusedByHand, "Somebody else scaled statefulsets.apps/dynctl-decode from 2 to")
				w.rate = 20
				w.live(40)
				if w.kube.plan().Decode != n || len(w.writes) != 0 {
					t.Errorf("pods %v, changes %+v", w.kube.plan(), w.writes)
				}
				w.rate = 4
				w.until("pods follow the workers again", 120, w.settled)
				if took := time.Since(at); took < time.Minute || w.plan().Decode != 2 {
					t.Errorf("after %s: %v", took, w.plan())
				}
			})
		})
	}
}

// A leader that stops between its look at who leads and its write to Kubernetes changes nothing when it goes on
// after the next one has taken over, although the number of pods is still the one that it saw.
func TestOldLeaderScales(t *testing.T) {
	inCloud(t, 1, 1, func(w *world) {
		woken, asleep := make(chan struct{}), make(chan struct{})
		writes := 0
		defer w.plans("node-1", func(key string) {
			if !strings.HasSuffix(key, "/scale") {
				return
			}
			if writes++; writes == 3 { // two are claims
				close(asleep)
				<-woken
			}
		})()
		w.live(60)
		w.rate = 50
		w.until("it scales", 60, func() bool {
			select {
			case <-asleep:
				return true
			default:
				return false
			}
		})
		w.rate = 4
		w.scale(1, 1) // the workers are wanted no more, by somebody else
		defer w.plans("node-2", nil)()
		w.live(12)
		before := w.kube.plan()
		close(woken)
		w.live(1)
		if got := w.kube.plan(); got != before || got != (planner.Plan{Prefill: 1, Decode: 1}) {
			t.Errorf("pods %v, then %v", before, got)
		}
		w.live(20)
		if !w.settled() {
			t.Errorf("pods %v", w.kube.plan())
		}
	})
}

// Who changes the object at that moment is not overwritten, and is seen at the next step.
func TestPodsConflict(t *testing.T) {
	inCloud(t, 1, 1, func(w *world) {
		writes := 0
		defer w.plans("node-1", func(key string) {
			if strings.HasSuffix(key, "/scale") {
				if writes++; writes == 3 {
					w.kube.status(cluster.RolePrefill, 1)
					w.kube.status(cluster.RolePrefill, 0)
					w.kube.status(cluster.RoleDecode, 0)
				}
			}
		})()
		w.live(60)
		w.rate = 50
		w.until("workers and pods", 120, func() bool { return w.plan().Prefill > 1 && w.settled() })
		if writes < 4 {
			t.Errorf("%d writes", writes)
		}
	})
}

// What is missing is named, and is no reason to write again and again.
func TestPodsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		do, mend func(w *world)
		want     string
	}{
		"the object": {
			func(w *world) { w.settings.Targets.Decode = target("other") },
			func(w *world) { w.kube.create("other", 1) }, "statefulsets.apps/other: other not found",
		},
		"the scale": {
			func(w *world) { w.settings.Targets.Decode.Resource = "controllerrevisions" },
			func(w *world) { w.settings.Targets.Decode = target("dynctl-decode") }, "does not know controllerrevisions.apps",
		},
		"the right to read": {
			func(w *world) { w.kube.server.Deny("GET statefulsets/scale", true) },
			func(w *world) { w.kube.server.Deny("GET statefulsets/scale", false) }, "statefulsets.apps/dynctl-prefill: cannot get resource statefulsets/scale",
		},
		"the right to scale": {
			func(w *world) { w.kube.server.Deny("PATCH statefulsets/scale", true) },
			func(w *world) { w.kube.server.Deny("PATCH statefulsets/scale", false) }, "statefulsets.apps/dynctl-prefill: cannot patch resource statefulsets/scale",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, 1, 1, func(w *world) {
				w.set(func() { tc.do(w) })
				first, err := w.store.Get(w.ctx, cluster.TopologyKey(ns))
				if err != nil {
					t.Fatal(err)
				}
				defer w.plans("node-1", nil)()
				w.rate = 50
				w.live(60)
				w.refusal(planner.RefusedConnector, tc.want)
				if kv, err := w.store.Get(w.ctx, cluster.TopologyKey(ns)); err != nil || kv.ModRevision != first.ModRevision || len(w.writes) != 0 {
					t.Errorf("%+v %v", kv, err)
				}
				w.set(func() { tc.mend(w) })
				w.until("it acts", 60, func() bool { return w.plan().Prefill > 1 })
			})
		})
	}
	inCloud(t, 1, 1, func(w *world) { // one that was built without Kubernetes
		a := &orders{actor: &actor{cfg: Config{Store: w.store, Namespace: ns, Kubernetes: func() (*kube.Client, error) { return nil, errors.New("built without") }, Log: slog.New(slog.DiscardHandler)}}}
		a.claim(w.ctx, ConnectorKubernetes, w.settings.Targets)
		if h := a.hold(time.Now(), View{Declared: &Declared{}}, planner.Config{Mode: planner.ModeAct}, ConnectorKubernetes); h.Refusal != planner.RefusedConnector || h.Why != "built without" {
			t.Errorf("%+v", h)
		}
	})
}

// While the API server is away nothing is changed, and the pods follow when it is back.
func TestPodsAway(t *testing.T) {
	inCloud(t, 1, 1, func(w *world) {
		away := false
		defer w.plans("node-1", func(key string) {
			if strings.HasSuffix(key, "/scale") && w.plan().Prefill > 1 && !away { // the topology is changed, the pods are not
				away = true
				w.kube.server.SetDown(true)
			}
		})()
		w.live(60)
		w.rate = 50
		w.until("it is away in the middle", 60, func() bool { return away })
		w.live(6)
		w.refusal(planner.RefusedStaleData, "statefulsets.apps/dynctl-prefill cannot be read: the server is down")
		before := w.plan()
		w.rate = 90
		w.live(60)
		if w.plan() != before {
			t.Errorf("%v", w.plan())
		}
		w.rate = 50
		w.kube.server.SetDown(false)
		w.until("pods follow", 60, func() bool { return w.kube.plan() == w.plan() })
		w.until("workers serve", 100, w.settled)
	})
}

// Pods that end count: a worker that changes its role has its new pod when the old one is gone.
func TestPodsKeepTheBudget(t *testing.T) {
	inCloud(t, 1, 3, func(w *world) {
		w.set(func() { w.settings.Planner.Devices = 4 })
		defer w.plans("node-1", nil)()
		w.live(30)
		w.scale(2, 2)
		w.until("a pod goes", 20, func() bool { return w.kube.plan().Decode == 2 })
		if w.kube.plan().Prefill != 1 {
			t.Errorf("pods %v", w.kube.plan())
		}
		w.until("the other role has its pod", 60, w.settled)
		if w.plan() != (planner.Plan{Prefill: 2, Decode: 2}) || w.kube.most > 4 {
			t.Errorf("%v, %d pods at once", w.plan(), w.kube.most)
		}
		w.scale(2, 4) // more than the budget
		w.live(30)
		if got := w.kube.plan(); got.Prefill+got.Decode > 4 || w.kube.most > 4 {
			t.Errorf("pods %v", got)
		}
	})
}
