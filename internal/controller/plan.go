package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// View is what the controller knows when it plans.
type View struct {
	// Topology is the desired state; nil when none was ever declared.
	Topology    *cluster.Topology
	Nodes       []cluster.Node
	Assignments []cluster.Assignment
	Status      map[string]cluster.WorkerStatus // by worker name
}

// Change is one write that is due: the new state of an assignment, or its end.
type Change struct {
	Assignment cluster.Assignment
	Delete     bool
	Why        string // for the log and for people
}

// Plan returns the changes that bring the assignments closer to the topology. It
// is idempotent: after its changes are applied it returns none until something
// else happens. Nodes that are gone lose their workers, surplus workers are asked
// to leave, missing ones are created and placed, and a changed model or engine is
// rolled out one worker of a role at a time.
func Plan(v View) []Change {
	p := planner{View: v, nodes: map[string]cluster.Node{}}
	slices.SortFunc(p.Nodes, func(a, b cluster.Node) int { return cmp.Compare(a.Name+a.ID, b.Name+b.ID) })
	for _, n := range p.Nodes {
		p.nodes[n.ID] = n
	}
	slices.SortFunc(p.Assignments, func(a, b cluster.Assignment) int { return cluster.CompareNames(a.Name, b.Name) })
	for i := range p.Assignments {
		p.settle(&p.Assignments[i])
	}
	if v.Topology != nil {
		for _, role := range cluster.Roles {
			p.resize(role)
		}
		p.rollOut()
	}
	p.placeAll()
	return p.changes()
}

type planner struct {
	View
	nodes map[string]cluster.Node
	work  []item
}

// item is an assignment on its way to a new state.
type item struct {
	cluster.Assignment
	isNew, deleted bool
	why            string
}

// settle takes in what happened to one assignment since it was written.
func (p *planner) settle(a *cluster.Assignment) {
	it := item{Assignment: *a}
	_, nodeLives := p.nodes[a.Node]
	st, known := p.Status[a.Name]
	switch {
	case a.Desire == cluster.DesireRemove && (a.Node == "" || !nodeLives):
		it.deleted, it.why = true, "removed: its node is gone"
	case a.Desire == cluster.DesireRemove && known && st.State == cluster.StateStopped && st.Generation == a.Generation:
		it.deleted, it.why = true, "removed"
	case a.Desire == cluster.DesireDrain && a.Node != "" && !nodeLives:
		it.Node, it.Device, it.Generation = "", "", a.Generation+1
		it.Unplaced = "drained; its node is gone"
		it.why = it.Unplaced
	case a.Desire == cluster.DesireRun && a.Node != "" && !nodeLives:
		it.Node, it.Device, it.Generation = "", "", a.Generation+1
		it.why = "its node is gone"
	}
	p.work = append(p.work, it)
}

// resize creates or removes assignments of a role until the count is right.
// Workers that are leaving do not count.
func (p *planner) resize(role cluster.Role) {
	var staying []int
	for i, it := range p.work {
		if it.Role == role && !it.deleted && it.Desire != cluster.DesireRemove {
			staying = append(staying, i)
		}
	}
	want := p.Topology.Count(role)
	model, engine := p.Topology.Specs(role)
	for len(staying) < want {
		staying = append(staying, len(p.work))
		p.work = append(p.work, item{isNew: true, why: "scale up", Assignment: cluster.Assignment{
			Name: p.freeName(), Role: role, Model: model, Engine: engine,
			Desire: cluster.DesireRun, Generation: 1,
		}})
	}
	// The least useful go first: unplaced, not serving, drained, then high numbers.
	slices.SortFunc(staying, func(a, b int) int {
		return cmp.Or(p.worth(a)-p.worth(b), cluster.CompareNames(p.work[b].Name, p.work[a].Name))
	})
	for _, i := range staying[:len(staying)-want] {
		it := &p.work[i]
		it.Desire, it.why = cluster.DesireRemove, "scale down"
		if it.Node == "" {
			it.deleted = true
		}
	}
}

func (p *planner) worth(i int) int {
	it := p.work[i]
	switch st := p.Status[it.Name]; {
	case it.Node == "":
		return 0
	case it.Desire == cluster.DesireDrain:
		return 2
	case !st.State.Serving():
		return 1
	}
	return 3
}

// freeName returns the lowest worker name that is not taken. Names of workers
// that still drain are taken.
func (p *planner) freeName() string {
	taken := map[string]bool{}
	for _, it := range p.work {
		taken[it.Name] = true
	}
	for n := 1; ; n++ {
		if name := cluster.WorkerName(n); !taken[name] {
			return name
		}
	}
}

// rollOut gives a changed model or engine to one worker of each role at a time,
// and only while all others of that role serve. A worker whose device is not wanted any
// longer leaves, and another one takes its place.
func (p *planner) rollOut() {
	for _, role := range cluster.Roles {
		model, engine := p.Topology.Specs(role)
		busy := false
		for i := range p.work {
			it := &p.work[i]
			if it.Role != role || it.deleted || it.Desire != cluster.DesireRun {
				continue
			}
			st := p.Status[it.Name]
			if !st.State.Serving() || st.Generation != it.Generation {
				busy = true
			}
		}
		for i := range p.work {
			it := &p.work[i]
			if it.Role != role || it.deleted || it.Desire == cluster.DesireRemove {
				continue
			}
			misplaced := it.Desire == cluster.DesireRun && it.Node != "" && !engine.RunsOn(it.Device)
			if misplaced && !p.offered(engine) {
				continue // better where it is than nowhere
			}
			if it.Model == model && it.Engine == engine && !misplaced {
				continue
			}
			if serving := p.Status[it.Name].State.Serving(); serving && busy {
				continue
			} else if serving {
				busy = true
			}
			if misplaced {
				it.Desire, it.why = cluster.DesireRemove, "its device is not wanted any longer"
				continue
			}
			it.Model, it.Engine, it.why = model, engine, "model or engine changed"
			it.Generation++
		}
		p.resize(role)
	}
}

// offered reports whether some node has a device that workers of an engine may run on.
func (p *planner) offered(e cluster.EngineSpec) bool {
	return slices.ContainsFunc(p.Nodes, func(n cluster.Node) bool {
		return slices.ContainsFunc(n.Devices, func(d cluster.Device) bool { return e.RunsOn(d.ID) })
	})
}

// placeAll finds a node and a device for every assignment that has none.
func (p *planner) placeAll() {
	load := p.load()
	for i := range p.work {
		it := &p.work[i]
		if it.deleted || it.Node != "" || it.Desire != cluster.DesireRun {
			continue
		}
		node, dev, why := place(it.Assignment, p.placement(it.Role), p.Nodes, load)
		if why != "" {
			if it.Unplaced != why {
				it.Unplaced, it.why = why, "unplaced: "+why
			}
			continue
		}
		it.Node, it.Device, it.Unplaced = node.ID, dev.ID, ""
		it.why = cmp.Or(it.why, "placed") + fmt.Sprintf(": on %s %s", node.Name, dev.ID)
		load.add(node.ID, dev.ID, it.Role)
	}
}

// placement is how workers of a role are placed.
func (p *planner) placement(r cluster.Role) cluster.Placement {
	if p.Topology == nil {
		return cluster.PlacementSpread
	}
	return p.Topology.PlacementOf(r)
}

// changes returns what differs from the assignments as they are stored.
func (p *planner) changes() []Change {
	before := map[string]cluster.Assignment{}
	for _, a := range p.Assignments {
		before[a.Name] = a
	}
	var out []Change
	for _, it := range p.work {
		old, stored := before[it.Name]
		switch {
		case it.deleted && stored:
			out = append(out, Change{Assignment: it.Assignment, Delete: true, Why: it.why})
		case !it.deleted && (!stored || it.Assignment != old):
			out = append(out, Change{Assignment: it.Assignment, Why: it.why})
		}
	}
	return out
}
