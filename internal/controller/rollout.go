package controller

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// rollout is what one plan may still begin for a group.
type rollout struct {
	surge, unavailable int // limits
	stopped, coming    int // workers that do not serve, and successors
}

// moving returns the number of workers that change now.
func (r rollout) moving() int { return r.stopped + r.coming }

// rolloutOf returns the limits for a cause, and what is under way. Until one worker of the
// group serves as the topology asks, one worker changes at a time: what is asked for may
// not work.
func (p *planner) rolloutOf(g group, kind causeKind) rollout {
	limits := p.Rollout
	if t := p.Topology; kind == restarted && t.Rolling.Restarts == t.Restarts {
		limits = t.Rolling.Over(limits)
	}
	r, proven := rollout{}, false
	r.surge, r.unavailable = limits.Limits(p.wants(g).count)
	for _, it := range p.work {
		if groupOf(it) != g || it.deleted {
			continue
		}
		switch {
		case it.Replaces != "":
			r.coming++
		case it.Desire == cluster.DesireRun && it.Node != "" && !it.serving():
			r.stopped++
		}
		proven = proven || it.serving() && !p.changesInPlace(p.orderOf(it))
	}
	if r.unavailable == 0 {
		r.surge = max(r.surge, 1)
	}
	if !proven {
		r.surge, r.unavailable = min(r.surge, 1), min(r.unavailable, 1)
	}
	return r
}

// rollOut applies a changed model or engine, and restarts, to as many workers of a group at
// a time as the limits allow. Workers that do not serve yet change at once.
func (p *planner) rollOut(g group) {
	limits := map[causeKind]rollout{}
	begun := 0
	for _, it := range p.work {
		if groupOf(it) != g || it.leaves() || p.successor(it) != nil {
			continue
		}
		c := p.orderOf(it)
		if !p.changesInPlace(c) {
			continue
		}
		r, known := limits[c.kind]
		if !known {
			r = p.rolloutOf(g, c.kind)
			limits[c.kind] = r
		}
		r.coming += begun
		starts := !it.status.state.Serving()
		refused := it.refuses(p.wanted(it, g.role))
		switch {
		case it.Desire == cluster.DesireDrain && refused:
		case it.Desire == cluster.DesireDrain, starts && !refused && p.feasible(it):
			p.update(it, c.text)
		case p.roll(it, c, r, starts, refused):
			begun++
		}
	}
}

// roll begins to change a worker, if the limits and the other workers allow it now. A
// restart happens in place, as does any change without a surge. Otherwise a successor
// comes first, and the worker changes in place if that has no room. The only one of its
// role gets a successor if there is room.
func (p *planner) roll(it *item, c cause, r rollout, starts, refused bool) bool {
	inPlace := !refused && p.others(it) && (c.kind == restarted && r.unavailable > 0 || r.surge == 0 && p.feasibleInPlace(it))
	if inPlace {
		if !starts && !p.mayStop(it, r) {
			return false
		}
		p.update(it, c.text)
		return true
	}
	w := p.wants(groupOf(it))
	d, why := p.place(&item{Assignment: &cluster.Assignment{Pool: it.Pool, Role: it.Role, Model: w.model, Engine: w.engine}})
	switch {
	case d != nil && (starts || r.moving() < max(r.surge, 1)):
		p.put(p.begin(it, c.text), d)
	case d != nil:
		return false
	case !refused && p.feasibleInPlace(it) && p.mayStop(it, r):
		p.update(it, fmt.Sprintf("%s, in place: no room for a worker beside it: %s", c.text, why))
	case starts || r.moving() == 0:
		p.begin(it, c.text) // it says that it has no place, while the worker serves on
	default: // room may come when what is under way is done
		return false
	}
	return true
}

// mayStop reports whether a worker may stop to change in place. One of several workers of
// a node keeps serving. So does one of several of a role: if more than one may stop, one
// serves as the topology asks.
func (p *planner) mayStop(it *item, r rollout) bool {
	if r.moving() >= r.unavailable {
		return false
	}
	stopped := false
	for _, o := range p.work {
		if o == it || o.deleted || o.Node != it.Node || o.Desire != cluster.DesireRun {
			continue
		}
		if o.serving() {
			return true
		}
		stopped = stopped || o.status.state != cluster.StateFailed
	}
	return !stopped
}

// others reports whether another worker of the same group serves.
func (p *planner) others(it *item) bool {
	for o := range p.staying(groupOf(it)) {
		if o != it && o.Desire == cluster.DesireRun && o.serving() {
			return true
		}
	}
	return false
}
