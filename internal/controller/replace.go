package controller

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// cause is why a worker cannot stay what, or where, it is.
type cause struct {
	kind causeKind
	text string
}

type causeKind int

const (
	fine      causeKind = iota
	ordered             // somebody asked for a successor
	evicted             // its node is drained
	outdated            // the model or the engine has changed
	restarted           // somebody asked for a restart of all workers
	misplaced           // there is a better place
)

// causeOf says why a worker must be replaced or changed, the weightiest cause first.
func (p *planner) causeOf(it *item) cause {
	model, engine := p.specs(it.Role)
	switch {
	case it.Replace:
		return cause{ordered, "a successor was ordered"}
	case p.evicted(it):
		return cause{evicted, p.nodes[it.Node].Name + " is drained"}
	case it.Model != model:
		return cause{outdated, "the model has changed"}
	case it.Engine != engine:
		return cause{outdated, "the engine has changed"}
	case it.Restarts < p.Topology.Restarts:
		return cause{restarted, "rolling restart"}
	}
	if why := p.betterPlace(it); why != "" {
		return cause{misplaced, why}
	}
	return cause{}
}

// evicted reports whether the node of a worker is drained.
func (p *planner) evicted(it *item) bool {
	_, cordoned := p.Cordons[it.Node]
	return cordoned && it.Node != ""
}

// successor returns the worker that is to follow another one, or nil.
func (p *planner) successor(x *item) *item {
	for _, it := range p.work {
		if it.Replaces == x.Name && !it.leaves() {
			return it
		}
	}
	return nil
}

// renew brings workers up to date, and to where they belong. A worker gets a successor,
// and leaves when that one serves: one at a time of each role, so that one device more
// is enough. Without room for a successor a changed worker restarts in its place, while
// all others of its role serve. Restarts that were ordered happen in place, too, as
// long as another worker of the role serves meanwhile.
func (p *planner) renew() {
	for _, it := range p.work {
		if it.Replaces != "" && !it.leaves() {
			p.succeed(it)
		}
	}
	for _, role := range cluster.Roles {
		p.replaceOrdered(role)
		p.rollOut(role)
	}
	p.rebalance()
}

// succeed takes the replacement of a worker by s further.
func (p *planner) succeed(s *item) {
	x := p.find(s.Replaces)
	switch {
	case x == nil || x.deleted:
		s.Replaces, s.why = "", s.Replaces+" has gone"
		return
	case x.leaves():
		return
	}
	c := p.causeOf(x)
	switch {
	case c.kind == fine || x.Desire == cluster.DesireDrain && !x.Replace:
		s.remove(x.Name + " stays")
	case p.serving(s):
		p.retire(x, s.Name+" serves in its place")
	case c.kind == ordered && !busy(p.Status[x.Name].State) && s.Node != "":
		p.retire(x, "it does not serve, "+s.Name+" starts in its place")
	case p.evict(x, s):
	case p.Status[s.Name].NoMemory && p.Status[s.Name].Generation == s.Generation && p.changesInPlace(c):
		p.squeeze(x, s, c)
	}
}

// squeeze goes on with a successor for which there is no room: whoever looks after the
// place of the worker that it is to follow says whether there would be without that one.
// If not, the successor goes on trying, and the worker serves.
func (p *planner) squeeze(x, s *item, c cause) {
	switch {
	case x.Node == "" || x.refuses(p.wanted(x, x.Role)):
	case s.Node == x.Node && s.Device == x.Device:
		if p.Status[s.Name].FitsAlone {
			s.remove("no memory beside " + x.Name)
			p.update(x, c.text+", in place: no memory for a worker beside it")
		}
	case s.Engine.RunsOn(x.Device):
		s.Node, s.Device, s.why = x.Node, x.Device, "no memory where it was: asking where "+x.Name+" runs"
		s.Generation++
	}
}

// changesInPlace reports whether a worker can do without a successor.
func (p *planner) changesInPlace(c cause) bool { return c.kind == outdated || c.kind == restarted }

// retire asks a worker to drain and go, within the limits of whoever ordered it.
func (p *planner) retire(x *item, why string) {
	if c, ok := p.Cordons[x.Node]; ok && !x.Replace {
		x.DrainDeadline, x.DrainForce = c.Deadline, c.Force
	}
	x.remove(why)
}

// suits reports whether a worker is on a device that its engine asks for.
func (p *planner) suits(x *item) bool {
	return slices.ContainsFunc(p.nodes[x.Node].Devices, func(d cluster.Device) bool { return d.ID == x.Device && x.Engine.RunsOn(d.ID) })
}

// evict asks a worker on a drained node to leave without waiting for its successor, if
// that one has no place. The drain wins over a replacement that was ordered before it.
func (p *planner) evict(x, successor *item) bool {
	if !p.evicted(x) || successor.Node != "" {
		return false
	}
	_, _, why := p.place(successor)
	if why == "" {
		return false
	}
	x.Replace = false
	p.retire(x, p.nodes[x.Node].Name+" is drained, and there is no other place: "+why)
	return true
}

// feasible reports whether some place has room for what the topology makes of a worker,
// that of the worker first of all.
func (p *planner) feasible(x *item) bool {
	if p.feasibleInPlace(x) {
		return true
	}
	next := &item{Assignment: x.Assignment}
	next.Become(p.wanted(x, x.Role))
	_, _, why := p.place(next)
	return x.Node == "" || why == ""
}

// feasibleInPlace reports whether the place of a worker has room for what the topology
// makes of it.
func (p *planner) feasibleInPlace(x *item) bool {
	next := &item{Assignment: x.Assignment}
	next.Become(p.wanted(x, x.Role))
	return slices.ContainsFunc(p.candidates(next), func(n cluster.Node) bool {
		return n.ID == x.Node && slices.ContainsFunc(n.Devices, func(d cluster.Device) bool { return d.ID == x.Device && next.Engine.RunsOn(d.ID) })
	})
}

// update makes a worker what the topology asks for, in its place unless that is on a
// device that is not asked for any longer.
func (p *planner) update(x *item, why string) {
	x.become(p.wanted(x, x.Role))
	x.why = why
	if _, _, nowhere := p.place(x); nowhere == "" && x.Desire == cluster.DesireRun && !p.suits(x) {
		x.Node, x.Device = "", ""
	}
}

// begin gives a worker a successor.
func (p *planner) begin(x *item, why string) *item {
	s := p.create(x.Role, "follows "+x.Name+", "+why)
	s.Replaces = x.Name
	return s
}

// replaceOrdered begins what people have ordered for workers of a role: it does not
// wait for others to serve.
func (p *planner) replaceOrdered(role cluster.Role) {
	moving := map[string]bool{} // nodes from which one is on its way
	for _, it := range p.staying(role) {
		if s := p.successor(it); s != nil {
			moving[it.Node] = true
		}
	}
	for _, it := range p.staying(role) {
		c := p.causeOf(it)
		if it.Desire != cluster.DesireRun || it.Node == "" || p.successor(it) != nil {
			continue
		}
		switch {
		case c.kind == ordered && busy(p.Status[it.Name].State):
			p.evict(it, p.begin(it, c.text))
		case c.kind == ordered:
			p.begin(it, "which does not serve")
			p.retire(it, "a successor was ordered, and it does not serve")
		case c.kind == evicted && !moving[it.Node]:
			moving[it.Node] = true
			p.evict(it, p.begin(it, c.text))
		}
	}
}

// rollOut gives a changed model or engine, and restarts, to one worker of a role at a
// time, and only while all others of that role serve. What does not serve yet changes
// at once.
func (p *planner) rollOut(role cluster.Role) {
	calm := true
	for _, it := range p.work {
		if it.Role == role && !it.deleted && (it.Replaces != "" || it.Desire == cluster.DesireRun && it.Node != "" && !p.serving(it)) {
			calm = false
		}
	}
	for _, it := range p.work {
		if it.Role != role || it.leaves() || p.successor(it) != nil {
			continue
		}
		c := p.causeOf(it)
		if !p.changesInPlace(c) {
			continue
		}
		refused := it.refuses(p.wanted(it, role))
		switch starts := !p.Status[it.Name].State.Serving(); {
		case it.Desire == cluster.DesireDrain && refused:
			continue
		case it.Desire == cluster.DesireDrain, starts && !refused && p.feasible(it):
			p.update(it, c.text)
			continue
		case !starts && !calm:
			continue
		}
		calm = false
		if c.kind == restarted && !refused && p.others(it) {
			p.update(it, c.text)
			continue
		}
		s := p.begin(it, c.text)
		if _, _, why := p.place(s); why != "" && !refused && p.feasibleInPlace(it) {
			p.work = p.work[:len(p.work)-1]
			p.update(it, fmt.Sprintf("%s, in place: no room for a worker beside it: %s", c.text, why))
		} // and one without a place says so, while the worker goes on
	}
}

// others reports whether another worker of the same role serves.
func (p *planner) others(it *item) bool {
	for _, o := range p.staying(it.Role) {
		if o != it && o.Desire == cluster.DesireRun && p.serving(o) {
			return true
		}
	}
	return false
}
