package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// future is a field of a later release, as that writes it.
const future = `"future":{ "b" :[1,  2],"a":"\u00e9"}`

// world is a cluster that does what is declared after a while, with any number of planners.
type world struct {
	*lab
	settings Settings
	leader   string // who leads
	rate     int
	rates    map[string]int // requests a second of pools with names
	topology string         // of its beginning; empty: one pool
	other    int            // requests a second of a model that is not declared
	former   bool           // the frontend is of an earlier release
	silent   bool           // frontends and workers say nothing
	chats    bool           // one long prompt comes for eight short ones
	never    bool           // workers that start never get ready
	obeys    bool           // the controller follows the topology
	starts   int            // seconds
	workers  []*pretended
	heard    time.Time // when the frontend spoke last
	writes   []write
	lost     time.Time            // when a node was lost last
	handed   time.Time            // when somebody changed the topology last
	led      map[string]time.Time // since when a planner runs
	kube     *cloud               // nil: workers have room on n1
}

// pretended is a pretended worker.
type pretended struct {
	node  string // empty: it waits for a place
	name  string
	pool  string
	role  cluster.Role // that it is assigned
	plays cluster.Role // that it has
	left  int          // seconds until it is as assigned; -1: never
	ready bool
	stats cluster.WorkerStats
	gone  bool
}

// write is a change of the topology by a planner.
type write struct {
	at           time.Time
	by           string
	from, to     cluster.Topology
	underWay     int
	leader       string
	devices      int
	heard        time.Time
	lost, handed time.Time
}

// inWorlds runs a test for each connector that changes the topology.
func inWorlds(t *testing.T, prefill, decode int, f func(t *testing.T, w *world)) {
	t.Run("topology", func(t *testing.T) { inWorld(t, prefill, decode, func(w *world) { f(t, w) }) })
	t.Run("kubernetes", func(t *testing.T) { inCloud(t, prefill, decode, func(w *world) { f(t, w) }) })
}

func inWorld(t *testing.T, prefill, decode int, f func(w *world)) {
	t.Helper()
	inAny(t, prefill, decode, nil, f)
}

func inAny(t *testing.T, prefill, decode int, prepare, f func(w *world)) {
	t.Helper()
	inLab(t, func(l *lab) {
		w := &world{lab: l, obeys: true, starts: 20, rate: 4, led: map[string]time.Time{}, heard: time.Now()}
		cfg := planner.Defaults()
		cfg.Mode, cfg.Devices, cfg.Prefill.Min, cfg.ActionTimeout = planner.ModeAct, 8, 1, 2*time.Minute
		w.settings = Settings{Planner: cfg, Connector: ConnectorTopology, MaxLocalPrefill: 64}
		if prepare != nil {
			prepare(w)
		}
		raw := w.topology
		if raw == "" {
			raw = fmt.Sprintf(`{"model":{"name":"m"},%s,"prefill":%d,"decode":%d,"generation":1,"updated_by":"ann@host"}`, future, prefill, decode)
		}
		if _, err := l.store.Put(l.ctx, cluster.TopologyKey(ns), []byte(raw)); err != nil {
			t.Fatal(err)
		}
		w.starts = 0
		w.control()
		w.control()
		w.starts = 20
		f(w)
	})
}

// recorder sees what a planner writes.
type recorder struct {
	store.Store
	w    *world
	node string
	gate func(key string) // before a compare-and-swap
}

func (r *recorder) CompareAndSwap(ctx context.Context, key string, rev store.Revision, value []byte, opts ...store.PutOption) (store.Revision, error) {
	if r.gate != nil {
		r.gate(key)
	}
	var before cluster.Topology
	if key == cluster.TopologyKey(ns) {
		before, _ = r.w.declared()
	}
	got, err := r.Store.CompareAndSwap(ctx, key, rev, value, opts...)
	if err == nil && key == cluster.TopologyKey(ns) {
		r.w.wrote(r.node, before)
	}
	return got, err
}

// wrote records a change; claims change nothing.
func (w *world) wrote(node string, before cluster.Topology) {
	after, raw := w.declared()
	if !strings.Contains(raw, future) {
		w.t.Errorf("%s lost a field: %s", node, raw)
	}
	if after.Equal(before) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	under := 0
	for _, x := range w.workers {
		if x.left > 0 {
			under++
		}
	}
	w.writes = append(w.writes, write{time.Now(), node, before, after, under, w.leader, w.settings.Planner.Devices, w.heard, w.lost, w.handed})
}

func (w *world) declared() (cluster.Topology, string) {
	w.t.Helper()
	kv, err := w.store.Get(w.ctx, cluster.TopologyKey(ns))
	if err != nil {
		w.t.Fatal(err)
	}
	var t cluster.Topology
	if err := json.Unmarshal(kv.Value, &t); err != nil {
		w.t.Fatalf("%v: %s", err, kv.Value)
	}
	return t, string(kv.Value)
}

// scale is what dynctl scale does.
func (w *world) scale(prefill, decode int) {
	w.t.Helper()
	kv, err := w.store.Get(w.ctx, cluster.TopologyKey(ns))
	if err != nil {
		w.t.Fatal(err)
	}
	now, _ := w.declared()
	next, err := amend(kv.Value, []field{{"prefill", prefill}, {"decode", decode}, {"generation", now.Generation + 1}, {"updated_by", "ann@host"}, {"reason", "dynctl scale"}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.CompareAndSwap(w.ctx, cluster.TopologyKey(ns), kv.ModRevision, next); err != nil {
		w.t.Fatal(err)
	}
	w.set(func() { w.handed = time.Now() })
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// plans runs a node's planner until the returned function is called, which awaits it. A gate is asked before each
// compare-and-swap.
func (w *world) plans(node string, gate func(key string)) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.set(func() { w.leader, w.led[node] = node, time.Now() })
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(time.Second / 2) // at the same time as the world, either could be first
		Run(ctx, Config{
			Store: &recorder{w.store, w, node, gate}, Bus: w.bus, Namespace: ns, Node: node, Metrics: metrics.NewPlanner(metrics.NewRegistry()), Log: slog.New(slog.DiscardHandler),
			Settings: func() (Settings, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.settings, nil
			},
			Kubernetes: w.kube.client(gate),
			Leads: func(context.Context) (bool, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.leader == node, nil
			},
		})
	})
	return func() { cancel(); wg.Wait() }
}

// control has assignments and workers follow the topology for a second.
func (w *world) control() {
	t, _ := w.declared()
	w.mu.Lock()
	defer w.mu.Unlock()
	assigned := func(x *pretended, role cluster.Role, desire cluster.Desire) {
		m, e := t.In(x.pool).Specs(role)
		w.put(cluster.AssignmentKey(ns, x.name), cluster.Assignment{Name: x.name, Pool: x.pool, Role: role, Model: m, Engine: e, Node: x.node, Desire: desire})
	}
	if w.kube != nil {
		w.kube.live()
		for _, x := range w.workers {
			if w.kube.place(x) {
				assigned(x, x.role, cluster.DesireRun)
			}
		}
	}
	for _, pool := range t.PoolNames() {
		w.controlPool(pool, t.In(pool), assigned)
	}
	w.work()
}

// controlPool has the workers of a pool follow its topology.
func (w *world) controlPool(pool string, t cluster.Topology, assigned func(*pretended, cluster.Role, cluster.Desire)) {
	want := map[cluster.Role]int{cluster.RolePrefill: t.Prefill, cluster.RoleDecode: t.Decode}
	have := map[cluster.Role][]*pretended{}
	for _, x := range w.workers {
		if !x.gone && x.pool == pool {
			have[x.role] = append(have[x.role], x)
		}
	}
	surplus := func(r cluster.Role) int { return len(have[r]) - want[r] }
	for i, to := range planner.Roles {
		from := planner.Roles[1-i]
		for w.obeys && w.kube == nil && surplus(from) > 0 && surplus(to) < 0 {
			x := have[from][len(have[from])-1]
			if !x.ready || x.left != 0 {
				break
			}
			have[from], have[to] = have[from][:len(have[from])-1], append(have[to], x)
			x.role, x.left = to, 2
			assigned(x, to, cluster.DesireRun)
		}
	}
	for _, role := range planner.Roles {
		for n := surplus(role); w.obeys && n > 0; n-- {
			list := have[role]
			x := list[0]
			if i := slices.IndexFunc(list, func(x *pretended) bool { return !x.ready }); i >= 0 {
				x = list[i]
			} else if i := slices.IndexFunc(list, w.kube.drained); i >= 0 {
				x = list[i]
			}
			have[role] = slices.DeleteFunc(list, func(y *pretended) bool { return x == y })
			x.gone, x.left = true, 3
			assigned(x, role, cluster.DesireRemove)
		}
		for n := surplus(role); w.obeys && n < 0; n++ {
			x := &pretended{name: cluster.WorkerName(w.free()), pool: pool, role: role, left: w.starts, node: w.kube.room(role)}
			if w.never {
				x.left = -1
			}
			w.workers = append(w.workers, x)
			assigned(x, role, cluster.DesireRun)
		}
	}
}

// work lets workers do what they are at for a second.
func (w *world) work() {
	for _, x := range w.workers {
		if x.left > 0 && (x.left > 1 || x.node != "" || x.gone) {
			x.left--
		}
		if x.left == 0 && !x.gone {
			changed := !x.ready
			changed = changed || x.plays != x.role
			if x.ready, x.plays = true, x.role; changed {
				w.put(cluster.StatusKey(ns, x.name), x.status(w.at))
			}
		}
		if x.left == 0 && x.gone {
			for _, key := range []string{cluster.AssignmentKey(ns, x.name), cluster.StatusKey(ns, x.name)} {
				if err := w.store.Delete(w.ctx, key); err != nil {
					w.t.Error(err)
				}
			}
		}
	}
	w.workers = slices.DeleteFunc(w.workers, func(x *pretended) bool { return x.gone && x.left == 0 })
}

func (w *world) free() int {
	for n := 1; ; n++ {
		if !slices.ContainsFunc(w.workers, func(x *pretended) bool { return x.name == cluster.WorkerName(n) }) {
			return n
		}
	}
}

func (x *pretended) status(at int) cluster.WorkerStatus {
	id, _ := cluster.WorkerNumber(x.name)
	return cluster.WorkerStatus{Name: x.name, Role: x.plays, Node: x.node, State: cluster.StateReady, InstanceID: cluster.InstanceID(id), UpdatedAt: time.Now(), Stats: x.stats}
}

// live lets seconds pass.
func (w *world) live(seconds int) {
	w.t.Helper()
	for range seconds {
		time.Sleep(time.Second)
		w.at++
		w.control()
		w.set(w.speak)
		synctest.Wait()
	}
}

// speak tells what the frontend and the workers did in a second.
func (w *world) speak() {
	publish := func(component, topic string, v any) {
		if err := w.bus.Publish(w.ctx, events.Subject(ns, component, topic), v); err != nil {
			w.t.Fatal(err)
		}
	}
	type group struct {
		pool string
		role cluster.Role
	}
	ready := map[group]int{}
	for _, x := range w.workers {
		if x.ready {
			ready[group{x.pool, x.plays}]++
		}
	}
	for _, x := range w.workers {
		if !x.ready {
			continue
		}
		if strings.HasPrefix(x.pool, "http") { // a server of others tells no steps
			continue
		}
		rate := w.rate
		if x.pool != "" {
			rate = w.rates[x.pool]
		}
		n := float64(rate) / float64(ready[group{x.pool, x.plays}])
		x.stats.BlockSize, x.stats.KVTotal, x.stats.KVActive, x.stats.MaxSeqs, x.stats.MaxBatchTokens = 16, 10_000, 1600, 64, 512
		if x.plays == cluster.RolePrefill || ready[group{x.pool, cluster.RolePrefill}] == 0 {
			x.works(n, profile.Work{Tokens: 1000, ChunkContext: 500_500 + w.at%7*1000})
		}
		if x.plays == cluster.RoleDecode {
			x.works(n, profile.Work{Decodes: 50, DecodeContext: 50 * 1025})
		}
		if x.plays == cluster.RolePrefill {
			x.stats.TransfersTotal += uint64(n)
			x.stats.TransferNanosTotal += uint64(n) * uint64(3*time.Millisecond)
		}
	}
	if w.silent {
		return
	}
	served := make([]cluster.ServedRequest, min(w.rate, cluster.MaxServed))
	for i := range served {
		served[i] = cluster.ServedRequest{Prompt: 1000, Output: 50, TTFT: 40 * time.Millisecond, ITL: 5 * time.Millisecond}
		if w.chats {
			served[i].Prompt = 400
			if (w.at*w.rate+i)%9 == 0 {
				served[i].Prompt = 12_000
			}
		}
	}
	all := loads("m", w.rate, served, w.rate)
	t, _ := w.declared()
	for pool, rate := range w.rates {
		all.Models = append(all.Models, loads(t.In(pool).Model.Name, rate, slices.Repeat(served[:min(1, len(served))], min(rate, cluster.MaxServed)), rate).Models...)
	}
	if w.other > 0 {
		all.Models = append(all.Models, loads("n", w.other, nil, 0).Models...)
	}
	if w.former {
		all.Models, all.PerModel, all.Started = nil, false, w.rate
	}
	publish(cluster.ComponentFrontend, cluster.TopicFrontendStats, all)
	w.heard = time.Now()
	for _, x := range w.workers {
		if x.ready {
			publish(string(x.plays), cluster.TopicWorkerStatus, x.status(w.at))
		}
	}
}

// works adds n times some work of two steps.
func (x *pretended) works(n float64, w profile.Work) {
	s := &x.stats
	s.StepsTotal += uint64(2 * n)
	s.StepTokensTotal += uint64(n * float64(w.Tokens))
	s.StepChunkContextTotal += uint64(n * float64(w.ChunkContext))
	s.StepDecodesTotal += uint64(n * float64(w.Decodes))
	s.StepDecodeContextTotal += uint64(n * float64(w.DecodeContext))
	s.StepNanosTotal += uint64(n * 1e9 * (labCosts.StepSeconds(w) + labCosts.Step))
}

// report returns what the store says of the planner.
func (w *world) report() planner.Report {
	w.t.Helper()
	r, _, err := store.GetJSON[planner.Report](w.ctx, w.store, cluster.PlannerKey(ns, ""))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		w.t.Fatal(err)
	}
	return r
}

// until lets up to so many seconds pass until something holds.
func (w *world) until(what string, seconds int, cond func() bool) {
	w.t.Helper()
	for range seconds {
		if cond() {
			return
		}
		w.live(1)
	}
	t, _ := w.declared()
	r := w.report()
	w.t.Fatalf("never: %s; declared %dP%dD, changes %+v\n%s", what, t.Prefill, t.Decode, r.Changes, strings.Join(r.Explanation, "\n"))
}
