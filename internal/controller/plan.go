package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// View is the input of Plan: the declared and the observed state of the cluster.
type View struct {
	// Topology is the desired state; nil when none was ever declared.
	Topology    *cluster.Topology
	Nodes       []cluster.Node
	Assignments []cluster.Assignment
	Status      map[string]cluster.WorkerStatus // by worker name
	// Cordons holds the nodes that shall run no workers, by node id.
	Cordons map[string]cluster.Cordon
	// Settling holds the nodes, by id, that arrived lately. Workers without a node may be
	// placed there, but no serving worker moves there.
	Settling map[string]bool
	// Rollout limits how many workers change at the same time.
	Rollout cluster.Rollout
}

// Change is one write that is due: the new state of an assignment, or its deletion.
type Change struct {
	Assignment cluster.Assignment
	Delete     bool
	Action     cluster.Action
	Why        string // the reason, for the log and for operators
}

// stops reports whether the worker ends, or loses its place.
func (c Change) stops() bool {
	return c.Action == cluster.ActionRemove || c.Action == cluster.ActionUnplace || c.Action == cluster.ActionDrop
}

// Plan returns the changes that bring the assignments closer to the topology. It is
// idempotent: after its changes are applied, it returns none until the input changes.
//
// Workers of lost nodes lose their place. Surplus workers take a role that lacks workers,
// or are to leave. Missing workers are created and placed. A worker that needs another
// form or another place gets a successor, and leaves once that serves; see renew.
//
// Plan changes nothing in v. It takes about as long as sorting the workers and devices,
// and as placing those workers that need a place.
func Plan(v View) []Change {
	return newPlanner(v).plan()
}

func (p *planner) plan() []Change {
	for _, it := range p.work {
		p.settle(it)
	}
	if p.Topology != nil && p.Topology.Validate() == nil {
		p.all = p.groups()
		for pool := range slices.Chunk(p.all, len(cluster.Roles)) {
			p.flip(pool)
			apart := p.apart(pool)
			for _, g := range pool {
				p.resize(g, apart[g.role])
			}
		}
		p.renew()
	}
	p.placeAll()
	return p.changes()
}

// planner holds the workers and nodes of one plan. What it derives from them is kept up
// to date by edit, so that asking for it does not cost a walk over all workers.
type planner struct {
	View
	hosts    []*host // by name
	byID     map[string]*host
	cordoned int // hosts
	wishes   map[group]wish
	all      []group

	work   []*item // by name, then those that are new
	byName map[string]*item
	heirs  map[string][]*item // by the name of the worker that they replace
	lowest int                // numbers of workers below it are taken

	forms    map[spec]*form
	stale    bool // the memory that workers of some form need has changed
	roles    map[roleOn]int
	touched  []*host
	rankings []*ranking
	compared int // pairs of devices, the measure of what a plan costs
}

// group is the workers of a role in a pool of the topology. What workers exchange, become or
// stand for stays within a pool.
type group struct {
	pool string
	role cluster.Role
}

func groupOf(it *item) group { return group{it.Pool, it.Role} }

// groups lists the groups of all pools, also of those that have workers and are no longer
// declared: pool by pool, each with all roles.
func (p *planner) groups() (out []group) {
	pools := p.Topology.PoolNames()
	known := map[string]bool{}
	for _, name := range pools {
		known[name] = true
	}
	for _, it := range p.work {
		if !known[it.Pool] {
			pools, known[it.Pool] = append(pools, it.Pool), true
		}
	}
	for _, pool := range pools {
		for _, role := range cluster.Roles {
			out = append(out, group{pool, role})
		}
	}
	return out
}

// wish is what the topology asks of workers of a group.
type wish struct {
	spec
	placement cluster.Placement
	count     int
	node      string // the name of the only node that may have them; empty for any
}

func newPlanner(v View) *planner {
	p := &planner{
		View: v, byID: make(map[string]*host, len(v.Nodes)), wishes: map[group]wish{},
		byName: make(map[string]*item, len(v.Assignments)), heirs: map[string][]*item{},
		forms: map[spec]*form{}, roles: map[roleOn]int{},
	}
	hosts, none, noDevice := make([]host, len(v.Nodes)), make([]device, len(v.Nodes)), cluster.Device{}
	for i := range v.Nodes {
		hosts[i].Node = &v.Nodes[i]
		p.hosts = append(p.hosts, &hosts[i])
	}
	slices.SortFunc(p.hosts, func(a, b *host) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	for i, h := range p.hosts {
		h.index, h.devices = i, make([]device, len(h.Devices))
		none[i] = device{Device: &noDevice, host: h, cpu: true}
		h.none = none[i : i+1]
		for j := range h.Devices {
			d := &h.Devices[j]
			h.devices[j] = device{Device: d, host: h, cpu: d.Kind() == "cpu", shared: h.MemoryOf(*d)}
		}
		if _, h.cordoned = v.Cordons[h.ID]; h.cordoned {
			p.cordoned++
		}
		p.byID[h.ID] = h
	}
	stored := make([]*cluster.Assignment, len(v.Assignments))
	for i := range v.Assignments {
		stored[i] = &v.Assignments[i]
	}
	slices.SortFunc(stored, func(a, b *cluster.Assignment) int { return cluster.CompareNames(a.Name, b.Name) })
	for _, a := range stored {
		p.add(a, a)
	}
	for _, it := range p.work { // when all have said what memory they need
		p.count(it, 1)
	}
	p.stale = false
	return p
}

// wants returns what the topology asks of workers of a group.
func (p *planner) wants(g group) wish {
	w, known := p.wishes[g]
	if !known {
		w.placement = cluster.PlacementSpread
		if p.Topology != nil {
			t := p.Topology.In(g.pool)
			w.placement, w.count = t.PlacementOf(g.role), t.Count(g.role)
			w.model, w.engine = t.Specs(g.role)
			attached, _ := p.Topology.AttachedAt(g.pool)
			w.node = attached.Node
		}
		p.wishes[g] = w
	}
	return w
}

// wanted returns the form that the topology asks of a worker in a role of its pool.
func (p *planner) wanted(it *item, role cluster.Role) cluster.Form {
	w := p.wants(group{it.Pool, role})
	return cluster.Form{Role: role, Model: w.model, Engine: w.engine, Restarts: p.Topology.Restarts, Starts: it.Starts}
}

// placeAll places every assignment that needs a node and has none, or records why it cannot.
func (p *planner) placeAll() {
	for _, it := range p.work {
		if it.deleted || it.Node != "" || !it.placed() {
			continue
		}
		if d, why := p.place(it); d != nil {
			p.put(it, d)
		} else if it.Unplaced != why {
			p.edit(it, func(a *cluster.Assignment) { a.Unplaced = why })
			it.why = join(it.why, "unplaced: "+why)
		}
	}
}

// put gives a worker a place.
func (p *planner) put(it *item, d *device) {
	p.edit(it, func(a *cluster.Assignment) { a.Node, a.Device, a.Unplaced = d.host.ID, d.ID, "" })
	it.why = cmp.Or(it.why, "placed") + strings.TrimSpace(fmt.Sprintf(": on %s %s", d.host.Name, d.ID))
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// changes returns the differences from the stored assignments.
func (p *planner) changes() (out []Change) {
	for _, it := range p.work {
		c := Change{Why: it.why, Action: cluster.ActionChange}
		switch old := it.stored; {
		case it.deleted && old != nil:
			c.Delete, c.Action = true, cluster.ActionDrop
		case it.deleted, old != nil && (it.Assignment == old || *it.Assignment == *old):
			continue
		case old == nil:
			c.Action = cluster.ActionStart
		case it.Desire == cluster.DesireRemove && old.Desire != cluster.DesireRemove:
			c.Action = cluster.ActionRemove
		case it.Node == "" && it.placed():
			c.Action = cluster.ActionUnplace
		case it.Refused != old.Refused && it.Refused.Why != "":
			c.Action = cluster.ActionRefuse
		}
		c.Assignment = *it.Assignment
		out = append(out, c)
	}
	return out
}
