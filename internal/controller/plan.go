package controller

import (
	"cmp"
	"fmt"
	"slices"

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
}

// Change is one write that is due: the new state of an assignment, or its deletion.
type Change struct {
	Assignment cluster.Assignment
	Delete     bool
	Action     cluster.Action
	Why        string // the reason, for the log and for operators
}

// Plan returns the changes that bring the assignments closer to the topology. It is
// idempotent: after its changes are applied, it returns none until the input changes.
//
// Workers of lost nodes lose their place. Surplus workers take a role that lacks workers,
// or are to leave. Missing workers are created and placed. A worker that needs another
// form or another place gets a successor, and leaves once that serves; see renew.
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
	if v.Topology != nil && v.Topology.Validate() == nil {
		p.flip()
		for _, role := range cluster.Roles {
			p.resize(role)
		}
		p.renew()
	}
	p.placeAll()
	return p.changes()
}

type planner struct {
	View
	nodes map[string]cluster.Node
	work  []*item
}

// item is an assignment that Plan is changing.
type item struct {
	cluster.Assignment
	deleted bool
	why     string
}

// leaves reports whether the worker is gone or is to leave.
func (it *item) leaves() bool { return it.deleted || it.Desire == cluster.DesireRemove }

func (it *item) unplace(why string) {
	it.Node, it.Device, it.why = "", "", why
	it.Generation++
}

// remove orders a worker to leave. A worker without a node is deleted at once.
func (it *item) remove(why string) {
	it.Desire, it.why = cluster.DesireRemove, why
	if it.Node == "" {
		it.deleted = true
	}
}

// find returns the worker with that name, or nil.
func (p *planner) find(name string) *item {
	if i := slices.IndexFunc(p.work, func(it *item) bool { return it.Name == name }); i >= 0 && name != "" {
		return p.work[i]
	}
	return nil
}

// serving reports whether a worker serves as its current assignment asks.
func (p *planner) serving(it *item) bool {
	st := p.Status[it.Name]
	return st.State.Serving() && st.Generation == it.Generation
}

// settle applies the effects of what happened to one assignment since it was written: its
// node was lost or drained, or the worker has stopped.
func (p *planner) settle(a *cluster.Assignment) {
	it := &item{Assignment: *a}
	_, nodeLives := p.nodes[a.Node]
	_, cordoned := p.Cordons[a.Node]
	st, known := p.Status[a.Name]
	switch {
	case a.Desire == cluster.DesireRemove && (a.Node == "" || !nodeLives):
		it.deleted, it.why = true, "removed: its node is gone"
	case a.Desire == cluster.DesireRemove && known && st.State == cluster.StateStopped && st.Generation == a.Generation:
		it.deleted, it.why = true, "removed"
	case a.Desire == cluster.DesireDrain && a.Node != "" && !nodeLives:
		it.unplace("drained; its node is gone")
		it.Unplaced = it.why
	case a.Desire == cluster.DesireRun && a.Node != "" && !nodeLives:
		it.unplace("its node is gone")
	case a.Desire == cluster.DesireRun && cordoned && (!known || !busy(st.State)):
		it.unplace("its node is drained")
	}
	if it.Node == "" {
		it.Replace = false // it starts on another node anyway
	}
	p.judge(it)
	p.work = append(p.work, it)
}

// judge checks the outcome of a change in place. It reverts a change that the worker
// could not make.
func (p *planner) judge(it *item) {
	if it.Last == (cluster.Form{}) || it.leaves() {
		return
	}
	st := p.Status[it.Name]
	why := ""
	switch {
	case p.serving(it):
		it.Last, it.why = cluster.Form{}, "it serves as changed"
		return
	case st.State == cluster.StateFailed && st.Generation == it.Generation:
		why = st.Reason
	case st.Declined.Generation == it.Generation:
		why = st.Declined.Why
	default:
		return
	}
	it.Refused = cluster.Refusal{Form: it.Form(), Why: why}
	it.Become(it.Last)
	it.Last, it.why = cluster.Form{}, "unchanged, because it cannot change: "+why
	it.Generation++
}

// become changes a worker in place. It remembers the old form, to revert to if the change
// fails, except for a worker that is a successor.
func (it *item) become(f cluster.Form) {
	if it.Last == (cluster.Form{}) && it.Replaces == "" {
		it.Last = it.Form()
	}
	it.Refused = cluster.Refusal{}
	it.Become(f)
	it.Generation++
}

// refuses reports whether the worker has failed to take the form before.
func (it *item) refuses(f cluster.Form) bool { return it.Refused.Why != "" && it.Refused.Form == f }

// wanted returns the form that the topology asks of a worker in a role.
func (p *planner) wanted(it *item, role cluster.Role) cluster.Form {
	model, engine := p.specs(role)
	return cluster.Form{Role: role, Model: model, Engine: engine, Restarts: p.Topology.Restarts, Starts: it.Starts}
}

// busy reports whether a worker in this state may have requests.
func busy(s cluster.State) bool { return s.Serving() || s == cluster.StateDraining }

// understudy reports whether a worker is the successor of one that is not to leave yet.
// The two count as one.
func (p *planner) understudy(it *item) bool {
	x := p.find(it.Replaces)
	return x != nil && !x.leaves()
}

// staying returns the workers of a role that count: those that are not to leave, without
// understudies.
func (p *planner) staying(role cluster.Role) (out []*item) {
	for _, it := range p.work {
		if it.Role == role && !it.leaves() && !p.understudy(it) {
			out = append(out, it)
		}
	}
	return out
}

// resize creates or removes assignments of a role until the count is right.
func (p *planner) resize(role cluster.Role) {
	staying := p.staying(role)
	want := p.Topology.Count(role)
	for len(staying) < want {
		it := p.create(role, "scale up")
		staying = append(staying, it)
	}
	// The least useful workers leave first: unplaced, not serving, drained, then high
	// numbers.
	slices.SortFunc(staying, func(a, b *item) int {
		return cmp.Or(p.worth(a)-p.worth(b), cluster.CompareNames(b.Name, a.Name))
	})
	for _, it := range staying[:max(len(staying)-want-p.held(staying), 0)] {
		it.remove("scale down")
		if s := p.successor(it); s != nil {
			s.remove("scale down")
		}
	}
}

// held counts the workers of a role that failed to take the role for which they are
// wanted. While that role lacks serving workers, they are not surplus in this one.
func (p *planner) held(staying []*item) (n int) {
	for _, it := range staying {
		to := it.Refused.Form.Role
		if it.Refused.Why == "" || to == it.Role {
			continue
		}
		served := 0
		for _, o := range p.staying(to) {
			if p.serving(o) {
				served++
			}
		}
		if served < p.Topology.Count(to) {
			n++
		}
	}
	return n
}

// create adds an assignment in the form that the topology asks for.
func (p *planner) create(role cluster.Role, why string) *item {
	model, engine := p.specs(role)
	it := &item{why: why, Assignment: cluster.Assignment{
		Name: p.freeName(), Role: role, Model: model, Engine: engine, Restarts: p.Topology.Restarts,
		Desire: cluster.DesireRun, Generation: 1,
	}}
	p.work = append(p.work, it)
	return it
}

// specs returns the model and the engine for workers of a role.
func (p *planner) specs(r cluster.Role) (cluster.ModelSpec, cluster.EngineSpec) {
	return p.Topology.Specs(r)
}

// placement returns how workers of a role are distributed over nodes.
func (p *planner) placement(r cluster.Role) cluster.Placement {
	if p.Topology == nil {
		return cluster.PlacementSpread
	}
	return p.Topology.PlacementOf(r)
}

func (p *planner) worth(it *item) int {
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

// freeName returns the lowest free worker name. Names of workers that still drain, and of
// workers that a successor replaces, are taken.
func (p *planner) freeName() string {
	taken := map[string]bool{}
	for _, it := range p.work {
		taken[it.Name], taken[it.Replaces] = true, true
	}
	for n := 1; ; n++ {
		if name := cluster.WorkerName(n); !taken[name] {
			return name
		}
	}
}

// placeAll places every assignment without a node, or records why it cannot.
func (p *planner) placeAll() {
	for _, it := range p.work {
		if it.deleted || it.Node != "" || it.Desire != cluster.DesireRun {
			continue
		}
		node, dev, why := p.place(it)
		if why != "" {
			if it.Unplaced != why {
				it.Unplaced, it.why = why, join(it.why, "unplaced: "+why)
			}
			continue
		}
		it.Node, it.Device, it.Unplaced = node.ID, dev.ID, ""
		it.why = cmp.Or(it.why, "placed") + fmt.Sprintf(": on %s %s", node.Name, dev.ID)
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ": " + b
}

// changes returns the differences from the stored assignments.
func (p *planner) changes() []Change {
	before := map[string]cluster.Assignment{}
	for _, a := range p.Assignments {
		before[a.Name] = a
	}
	var out []Change
	for _, it := range p.work {
		old, stored := before[it.Name]
		c := Change{Assignment: it.Assignment, Why: it.why, Action: cluster.ActionChange}
		switch {
		case it.deleted && stored:
			c.Delete, c.Action = true, cluster.ActionDrop
		case it.deleted, stored && it.Assignment == old:
			continue
		case !stored:
			c.Action = cluster.ActionStart
		case it.Desire == cluster.DesireRemove && old.Desire != cluster.DesireRemove:
			c.Action = cluster.ActionRemove
		case it.Node == "" && it.Desire == cluster.DesireRun:
			c.Action = cluster.ActionUnplace
		case it.Refused != old.Refused && it.Refused.Why != "":
			c.Action = cluster.ActionRefuse
		}
		out = append(out, c)
	}
	return out
}
