package live

import (
	"flag"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/failpoint"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/planner"
)

var modelSeed = flag.Uint64("live.seed", 0, "the only seed of TestModel; 0: a few")

// TestModel lets planners run on a pretended cluster with random loads while frontends fall silent, nodes are
// lost, the controller does not follow, workers never get ready, somebody scales, budgets change, leaders are
// deposed and go on, and leaders die in the middle of changes. In the end, all is quiet and carried out.
func TestModel(t *testing.T) {
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = seeds[:0]
		for s := range patience.Rounds(6) {
			seeds = append(seeds, uint64(1+s))
		}
	}
	writes := 0
	for _, seed := range seeds {
		if !t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) { writes += runModel(t, seed) }) {
			t.Fatalf("go test ./internal/planner/live -run TestModel -live.seed %d", seed)
		}
	}
	if *modelSeed == 0 && writes < 5*len(seeds) {
		t.Errorf("%d changes: nothing is tried", writes)
	}
}

func runModel(t *testing.T, seed uint64) (writes int) {
	r := rand.New(rand.NewPCG(seed, 3))
	inWorld(t, 1, 1, func(w *world) {
		w.settings.Planner.Prefill.Min = r.IntN(2)
		stops := map[string]func(){}
		node := func() string { return "node-" + strconv.Itoa(1+r.IntN(3)) }
		begin := func(name string) {
			if stops[name] == nil {
				stops[name] = w.plans(name, nil)
			}
			w.set(func() { w.leader = name })
		}
		end := func(name string) {
			if stop := stops[name]; stop != nil {
				delete(stops, name)
				stop()
			}
		}
		defer func() {
			for name := range stops {
				end(name)
			}
		}()
		begin("node-1")
		w.live(60)
		quiet := 0
		for range 200 {
			w.live(1 + r.IntN(5))
			switch r.IntN(24) {
			case 0, 1, 2:
				w.set(func() { w.rate = r.IntN(90) })
			case 3:
				w.set(func() { w.rate = 4 })
			case 4:
				w.set(func() { w.silent = true })
			case 5, 6:
				w.set(func() { w.silent = false })
			case 7:
				if _, err := w.store.Get(w.ctx, cluster.NodeKey("n2")); err == nil {
					w.set(func() { w.lost = time.Now() })
					if err := w.store.Delete(w.ctx, cluster.NodeKey("n2")); err != nil {
						t.Fatal(err)
					}
				} else {
					w.put(cluster.NodeKey("n2"), cluster.Node{ID: "n2", Name: "node-2"})
				}
			case 8:
				if r.IntN(2) == 0 {
					w.scale(r.IntN(4), 1+r.IntN(3))
				}
			case 9:
				w.set(func() { w.settings.Planner.Devices = 2 + r.IntN(8) })
			case 10: // another leader; the one before does not know yet, or never stops
				begin(node())
			case 11:
				end(node())
			case 12: // it dies between the topology and what it tells
				name := w.leader
				if stop := stops[name]; stop != nil {
					disarm, err := failpoint.Arm("planner.declared", 1, func() { go stop(); <-time.After(time.Second) })
					if err != nil {
						t.Fatal(err)
					}
					w.set(func() { w.rate = 60 })
					w.live(15)
					disarm()
					end(name)
				}
			case 13:
				w.never = !w.never
			case 14:
				w.obeys = r.IntN(4) > 0
			case 15:
				w.starts = 1 + r.IntN(100)
			}
			if len(stops) == 0 || stops[w.leader] == nil {
				if quiet++; quiet > 3 {
					quiet = 0
					begin(node())
				}
			}
		}
		w.set(func() { w.silent, w.never, w.obeys, w.starts, w.rate = false, false, true, 10, 8 })
		for _, x := range w.workers { // who starts it has mended what was wrong
			if x.left < 0 {
				x.left = w.starts
			}
		}
		if stops[w.leader] == nil {
			begin("node-1")
		}
		w.live(1200)
		before := len(w.writes)
		w.live(300)
		if !w.carried() || len(w.writes) != before {
			t.Errorf("never at rest: %v, %d changes in the last 5 minutes", w.plan(), len(w.writes)-before)
			for _, x := range w.writes[before:] {
				t.Logf("%s %s", x.at.Format(time.TimeOnly), x.to.Reason)
			}
			for _, r := range w.lab.heard() {
				if r.Decision.Changes() && time.Since(r.Decision.Time) < 5*time.Minute {
					t.Logf("%s %s", r.Decision.Time.Format(time.TimeOnly), strings.Join(r.Explanation, "\n"))
				}
			}
		}
		if p := w.plan(); p.Prefill+p.Decode > 3 || p.Decode < 1 {
			t.Errorf("8 requests/s have %v", p)
		}
		for i := range w.writes {
			w.check(i)
		}
		writes = len(w.writes)
	})
	return writes
}

// check is what holds of every change.
func (w *world) check(i int) {
	w.t.Helper()
	x := w.writes[i]
	wrong := func(format string, args ...any) {
		w.t.Helper()
		w.t.Errorf("%s, %s by %s (%s): "+format, append([]any{x.at.Format(time.TimeOnly), x.to.Reason, x.by, x.leader}, args...)...)
	}
	from, to := planner.Plan{Prefill: x.from.Prefill, Decode: x.from.Decode}, planner.Plan{Prefill: x.to.Prefill, Decode: x.to.Decode}
	if x.by != x.leader {
		wrong("it does not lead")
	}
	if x.to.Generation != x.from.Generation+1 || x.to.UpdatedBy != "planner@"+x.by {
		wrong("generation %d after %d", x.to.Generation, x.from.Generation)
	}
	if n := to.Prefill + to.Decode; n > x.devices {
		wrong("%d of %d devices", n, x.devices)
	}
	if from == to {
		wrong("nothing changes")
	}
	if to.Decode < 1 {
		wrong("nothing serves")
	}
	if age := x.at.Sub(x.heard); age > cluster.SilentAfter {
		wrong("the frontend spoke %s ago", age)
	}
	if since := x.at.Sub(x.lost); w.led[x.by].Before(x.lost) && !x.lost.IsZero() && since < planner.Defaults().NodeLossHold {
		wrong("%s after a node was lost", since)
	}
	cool := planner.Defaults().CoolDown
	if since := x.at.Sub(x.handed); w.led[x.by].Before(x.handed) && !x.handed.IsZero() && since < cool {
		wrong("%s after somebody scaled", since)
	}
	because := func(why string) bool { return strings.HasSuffix(x.to.Reason, "because "+why) }
	budget, late := because("the budget is exceeded"), because("a worker did not get ready in time")
	if !budget && !late && !because("the load that it was for has gone") && x.underWay > 0 {
		wrong("%d workers are not as assigned", x.underWay)
	}
	for _, before := range w.writes[:i] {
		for _, role := range planner.Roles {
			if x.at.Sub(before.at) < cool && before.to.Count(role) > before.from.Count(role) && to.Workers(role) < from.Workers(role) && !budget && !late {
				wrong("%s after %s: %s", x.at.Sub(before.at), before.to.Reason, role)
			}
		}
	}
}
