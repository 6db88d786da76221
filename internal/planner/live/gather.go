package live

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// Bounds of what is remembered between two observations.
const (
	maxServed  = 4096 // finished requests
	maxSources = 4096 // workers, and frontends
	// sampled is how many finished requests one observation has at most.
	sampled = 512
)

// View is what the store says at the end of a window: of the whole cluster, or of one pool and what else serves
// its model.
type View struct {
	Pool        string // that it is of
	Shared      bool   // other pools have prefill workers that take prompts from the same queue
	Stale       string // why it is out of date; empty if it is not
	Assignments map[string]cluster.Assignment
	Status      map[string]cluster.WorkerStatus
	Nodes       map[string]cluster.Node // of the namespace, by id
	// Declared is the topology; nil if there was never one.
	Declared *Declared
	Virtual  Virtual
	Cordons  map[string]cluster.Cordon // nodes that shall run no workers, by id
	Measured map[string]profile.Taught // profiles that somebody has measured for the planner, by model
	// MaxLocalPrefill is disagg.max_local_prefill_tokens in effect, MaxLocalRevision that of the
	// setting; 0 if it is not set.
	MaxLocalPrefill  int
	MaxLocalRevision store.Revision
}

// Gatherer makes observations from events and views. Its memory is bounded. It is safe for
// concurrent use.
type Gatherer struct {
	mu        sync.Mutex
	began     time.Time // when it began to listen
	start     time.Time // of the window
	newest    time.Time // of the frontends' events
	arrived   int
	served    []weighted
	lost      uint64 // events that never arrived, in the window
	untold    string // a frontend that does not tell models apart; empty: none in the window
	frontends map[string]time.Time
	workers   map[string]*workerNews
	queued    int
	nodes     map[string]bool // that were there, and whether one that goes is lost: not one that was drained
	pending   map[pendingKey]pendingAction
	order     []pendingKey // of pending, as it is told
	finished  []planner.Duration
	speed     *Speed
}

// weighted is a finished request that stands for several.
type weighted struct {
	planner.Request
	weight float64
}

// NewGatherer returns a gatherer whose first window begins now.
func NewGatherer(now time.Time, speed *Speed) *Gatherer {
	return &Gatherer{
		began: now, start: now, newest: now, speed: speed,
		frontends: map[string]time.Time{}, workers: map[string]*workerNews{}, pending: map[pendingKey]pendingAction{},
	}
}

// Frontend takes in the figures of one second of a frontend: of one model, or of all with an empty name.
func (g *Gatherer) Frontend(now time.Time, f cluster.FrontendStats, model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.frontends[f.Frontend]; !known && len(g.frontends) == maxSources {
		return
	}
	g.frontends[f.Frontend], g.newest = now, now
	if !f.PerModel {
		g.untold = f.Frontend
	}
	load := f.Of(model)
	g.arrived += max(load.Started, 0)
	if n := len(load.Served); n > 0 && n <= cluster.MaxServedAll {
		each := float64(max(load.ServedOf, n)) / float64(n)
		for _, r := range load.Served {
			length := planner.Length{ISL: max(r.Prompt, 0), Cached: min(max(r.Cached, 0), max(r.Prompt, 0)), OSL: max(r.Output, 0)}
			g.served = append(g.served, weighted{planner.Request{Length: length, TTFT: max(r.TTFT, 0), ITL: max(r.ITL, 0)}, each})
		}
	}
	if len(g.served) > maxServed {
		g.served = thin(g.served, maxServed/2)
	}
}

// Worker takes in a status from the event plane.
func (g *Gatherer) Worker(now time.Time, st cluster.WorkerStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.workers[st.Name]
	if w == nil {
		if len(g.workers) == maxSources {
			return
		}
		w = &workerNews{}
		g.workers[st.Name] = w
	}
	w.hear(now, st)
}

// Queue takes in the depth of the prefill queue.
func (g *Gatherer) Queue(q cluster.QueueDepth) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = max(q.Waiting, 0)
}

// Lost notes events of frontends that never arrived: arrivals are missing.
func (g *Gatherer) Lost(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost += n
}

// Observe ends the window and returns what was seen in it. The window ends with the newest event
// of a frontend: each event covers a second, so that the count belongs to whole ones.
func (g *Gatherer) Observe(now time.Time, v View) planner.Observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := planner.Observation{Start: g.start, End: g.newest, Arrived: g.arrived, MaxLocalPrefill: v.MaxLocalPrefill}
	for _, s := range thin(g.served, sampled) {
		o.Requests = append(o.Requests, s.Request)
	}
	o.Stale = g.silence(now, v)
	switch {
	case o.Stale != "":
	case g.lost > 0:
		o.Stale = fmt.Sprintf("%d events of frontends were lost", g.lost)
	case g.untold != "":
		o.Stale = fmt.Sprintf("the frontend of %s does not tell the load of each model: it is of an earlier release", g.untold)
	case !g.newest.After(g.start):
		o.Stale = "no frontend has told of requests"
	}
	g.roles(now, v, &o)
	g.actions(now, v)
	for _, key := range g.order {
		o.Pending = append(o.Pending, planner.Pending{Kind: key.kind, Role: g.pending[key].role, Since: g.pending[key].since, Worker: key.worker})
	}
	o.Finished, g.finished = g.finished, nil
	for id, lost := range g.nodes {
		if _, there := v.Nodes[id]; !there && lost && v.Stale == "" {
			o.NodesLost++
		}
	}
	if v.Stale == "" {
		g.nodes = make(map[string]bool, len(v.Nodes))
		for id := range v.Nodes {
			_, drained := v.Cordons[id]
			g.nodes[id] = !drained
		}
	}
	if g.speed != nil {
		g.speed.choose()
		o.Unknown = g.speed.Missing()
	}
	g.start, g.arrived, g.served, g.lost, g.untold = g.newest, 0, nil, 0, ""
	return o
}

// Look sees which actions have begun or ended, between two observations: they take less time than a
// window.
func (g *Gatherer) Look(now time.Time, v View) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.actions(now, v)
}

// silence returns who says nothing although it should, or nothing.
func (g *Gatherer) silence(now time.Time, v View) string {
	if v.Stale != "" {
		return v.Stale
	}
	silent := func(since time.Time) bool { return now.Sub(since) > cluster.SilentAfter }
	frontends := map[string]bool{}
	for _, n := range v.Nodes {
		if n.FrontendURL != "" {
			frontends[n.Name] = true
		}
	}
	maps.DeleteFunc(g.frontends, func(name string, _ time.Time) bool { return !frontends[name] })
	for _, name := range slices.Sorted(maps.Keys(frontends)) {
		heard, ever := g.frontends[name]
		if !ever { // a new one has time to speak
			heard, g.frontends[name] = now, now
		}
		if silent(heard) {
			return fmt.Sprintf("the frontend of %s has said nothing for %s", name, now.Sub(heard).Round(time.Second))
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(v.Status), cluster.CompareNames) {
		st := v.Status[name]
		w := g.workers[name]
		if w == nil || !st.State.Serving() || !st.Role.HoldsKV() {
			continue
		}
		if silent(w.heard) {
			return fmt.Sprintf("%s has said nothing for %s", name, now.Sub(w.heard).Round(time.Second))
		}
	}
	return ""
}

// thin returns at most n of the requests, each as likely as its weight: the ones at the middles of n equal
// shares of all weights. What is left weighs the same together.
func thin(in []weighted, n int) []weighted {
	if len(in) == 0 {
		return nil
	}
	total, equal := 0.0, true
	for _, s := range in {
		total += s.weight
		equal = equal && s.weight == in[0].weight
	}
	if equal && len(in) <= n {
		return in
	}
	n = min(n, len(in))
	out := make([]weighted, 0, n)
	share, sum := total/float64(n), 0.0
	for _, s := range in {
		sum += s.weight
		for len(out) < n && (float64(len(out))+0.5)*share < sum {
			s.weight = share
			out = append(out, s)
		}
	}
	return out
}
