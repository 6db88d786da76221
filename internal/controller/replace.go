package controller

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// cause is the reason why a worker needs another form or another place.
type cause struct {
	kind causeKind
	text string
}

type causeKind int

const (
	fine      causeKind = iota
	ordered             // an operator asked for a successor
	evicted             // its node is drained
	outdated            // the model or the engine has changed
	restarted           // an operator asked for a restart of all workers
	misplaced           // there is a better place
)

// causeOf returns the most important reason to replace or change a worker.
func (p *planner) causeOf(it *item) cause {
	c := p.orderOf(it)
	if c.kind == fine {
		if why := p.betterPlace(it); why != "" {
			return cause{misplaced, why}
		}
	}
	return c
}

// orderOf returns the most important reason that somebody has ordered: all but misplaced.
func (p *planner) orderOf(it *item) cause {
	w := p.wants(groupOf(it))
	switch {
	case it.Replace:
		return cause{ordered, "a successor was ordered"}
	case p.evicted(it):
		return cause{evicted, p.nameOf(it.Node) + " is drained"}
	case it.Model != w.model:
		return cause{outdated, "the model has changed"}
	case it.Engine != w.engine:
		return cause{outdated, "the engine has changed"}
	case it.Restarts < p.Topology.Restarts:
		return cause{restarted, "rolling restart"}
	}
	return cause{}
}

// nameOf returns the name of a node; empty if it is gone.
func (p *planner) nameOf(node string) string {
	if h := p.byID[node]; h != nil {
		return h.Name
	}
	return ""
}

// evicted reports whether the node of a worker is drained.
func (p *planner) evicted(it *item) bool {
	_, cordoned := p.Cordons[it.Node]
	return cordoned && it.Node != ""
}

// renew brings workers into the form and to the place that they should have. A worker
// gets a successor, and leaves once that serves. Limits say how many workers of a group
// change at a time; see rollOut.
func (p *planner) renew() {
	for _, it := range p.work {
		if it.Replaces != "" && !it.leaves() {
			p.succeed(it)
		}
	}
	for _, g := range p.all {
		p.replaceOrdered(g)
		p.rollOut(g)
	}
	p.rebalance()
}

// succeed continues the replacement of a worker by its successor s.
func (p *planner) succeed(s *item) {
	x := p.find(s.Replaces)
	switch {
	case x == nil || x.deleted:
		s.why = s.Replaces + " has gone"
		p.edit(s, func(a *cluster.Assignment) { a.Replaces = "" })
		p.lowest = 0
		return
	case x.leaves():
		return
	}
	c := p.causeOf(x)
	switch {
	case c.kind == fine || x.Desire == cluster.DesireDrain && !x.Replace:
		p.remove(s, x.Name+" stays")
	case s.serving():
		p.retire(x, s.Name+" serves in its place")
	case c.kind == ordered && !busy(x.status.state) && s.Node != "":
		p.retire(x, "it does not serve, "+s.Name+" starts in its place")
	case p.evict(x, s):
	case s.status.noMemory && s.status.generation == s.Generation && p.changesInPlace(c):
		p.squeeze(x, s, c)
	}
}

// squeeze handles a successor that found no memory. It is moved to the device of x, whose
// node reports whether it would fit without x. If so, x changes in place and the
// successor is removed. If not, the successor keeps trying while x serves.
func (p *planner) squeeze(x, s *item, c cause) {
	switch {
	case x.Node == "" || x.refuses(p.wanted(x, x.Role)):
	case s.Node == x.Node && s.Device == x.Device:
		r := p.rolloutOf(groupOf(x), c.kind)
		r.coming = 0 // they wait for memory, as this one does
		if s.status.fitsAlone && p.mayStop(x, r) {
			p.remove(s, "no memory beside "+x.Name)
			p.update(x, c.text+", in place: no memory for a worker beside it")
		}
	case s.Engine.RunsOn(x.Device):
		p.edit(s, func(a *cluster.Assignment) {
			a.Node, a.Device = x.Node, x.Device
			a.Generation++
		})
		s.why = "no memory where it was: asking where " + x.Name + " runs"
	}
}

// changesInPlace reports whether the cause can be resolved without a successor.
func (p *planner) changesInPlace(c cause) bool { return c.kind == outdated || c.kind == restarted }

// retire orders a worker to drain and leave. If its node is drained, the deadline and
// force of that order apply.
func (p *planner) retire(x *item, why string) {
	if c, ok := p.Cordons[x.Node]; ok && !x.Replace {
		p.edit(x, func(a *cluster.Assignment) { a.DrainDeadline, a.DrainForce = c.Deadline, c.Force })
	}
	p.remove(x, why)
}

// suits reports whether a worker runs on a device that its engine allows.
func (p *planner) suits(x *item) bool {
	_, d := p.where(x)
	return d != nil && x.Engine.RunsOn(d.ID)
}

// evict orders a worker on a drained node to leave before its successor serves, if the
// successor has no place. The drain of the node overrides an earlier order to replace the
// worker.
func (p *planner) evict(x, successor *item) bool {
	if !p.evicted(x) || successor.Node != "" {
		return false
	}
	_, why := p.place(successor)
	if why == "" {
		return false
	}
	p.edit(x, func(a *cluster.Assignment) { a.Replace = false })
	p.retire(x, p.nameOf(x.Node)+" is drained, and there is no other place: "+why)
	return true
}

// feasible reports whether some device has room for the worker in the form that the
// topology asks for. It checks the worker's own device first.
func (p *planner) feasible(x *item) bool {
	if p.feasibleInPlace(x) {
		return true
	}
	if x.Node == "" {
		return true
	}
	next := *x.Assignment
	next.Become(p.wanted(x, x.Role))
	_, why := p.place(&item{Assignment: &next})
	return why == ""
}

// feasibleInPlace reports whether the worker's own device has room for it in the form
// that the topology asks for.
func (p *planner) feasibleInPlace(x *item) bool {
	h, d := p.where(x)
	if d == nil || h.cordoned {
		return false
	}
	next := *x.Assignment
	next.Become(p.wanted(x, x.Role))
	return d.fits(p.rankingOf(&item{Assignment: &next}, false), x) && next.Engine.RunsOn(d.ID)
}

// update changes a worker into the form that the topology asks for. It stays in place
// unless the topology no longer allows its device and another one has room.
func (p *planner) update(x *item, why string) {
	p.become(x, p.wanted(x, x.Role))
	x.why = why
	if x.Desire != cluster.DesireRun || p.suits(x) {
		return
	}
	if _, nowhere := p.place(x); nowhere == "" {
		p.edit(x, func(a *cluster.Assignment) { a.Node, a.Device = "", "" })
	}
}

// begin creates a successor for a worker.
func (p *planner) begin(x *item, why string) *item {
	return p.create(groupOf(x), x.Name, "follows "+x.Name+", "+why)
}

// replaceOrdered starts the replacements that operators ordered, all at once, and those of
// drained nodes: as many of a group as may surge, and at least one on each node. It does not
// wait until other workers serve.
func (p *planner) replaceOrdered(g group) {
	moving := map[string]bool{} // nodes from which a worker is moving
	for it := range p.staying(g) {
		if s := p.successor(it); s != nil {
			moving[it.Node] = true
		}
	}
	r := p.rolloutOf(g, evicted)
	for _, it := range slices.Collect(p.staying(g)) {
		c := p.orderOf(it)
		if it.Desire != cluster.DesireRun || it.Node == "" || p.successor(it) != nil {
			continue
		}
		switch {
		case c.kind == ordered && busy(it.status.state):
			p.evict(it, p.begin(it, c.text))
		case c.kind == ordered:
			p.begin(it, "which does not serve")
			p.retire(it, "a successor was ordered, and it does not serve")
		case c.kind == evicted && (!moving[it.Node] || r.coming < r.surge):
			moving[it.Node] = true
			r.coming++
			p.evict(it, p.begin(it, c.text))
		}
	}
}
