package controller

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// staying iterates over the workers of a group that count: those that are not to leave,
// without understudies.
func (p *planner) staying(g group) iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, it := range p.work {
			if groupOf(it) == g && !it.leaves() && !p.understudy(it) && !yield(it) {
				return
			}
		}
	}
}

// size returns the number of workers of a group that count.
func (p *planner) size(g group) (n int) {
	for range p.staying(g) {
		n++
	}
	return n
}

// resize creates or removes assignments of a group until the count is right. apart says why
// no worker changes its role instead; see apart.
func (p *planner) resize(g group, apart string) {
	surplus := p.surplus(g)
	for ; surplus < 0; surplus++ {
		p.create(g, "", join("scale up", apart))
	}
	if surplus == 0 {
		return
	}
	staying := slices.Collect(p.staying(g))
	// The least useful workers leave first: unplaced, not serving, drained, those that must
	// move anyway because their node is drained, then high numbers.
	slices.SortFunc(staying, func(a, b *item) int {
		return cmp.Or(worth(a)-worth(b), yesFirst(p.evicted(a), p.evicted(b)), cluster.CompareNames(b.Name, a.Name))
	})
	for _, it := range staying[:max(surplus-p.held(staying), 0)] {
		p.remove(it, join("scale down", apart))
		if s := p.successor(it); s != nil {
			p.remove(s, "scale down")
		}
	}
}

// held counts the workers of a group that failed to take the role for which they are
// wanted. While that role lacks serving workers, they are not surplus in this one.
func (p *planner) held(staying []*item) (n int) {
	lacks := map[cluster.Role]bool{}
	for _, it := range staying {
		to := it.Refused.Form.Role
		if it.Refused.Why == "" || to == it.Role {
			continue
		}
		lack, known := lacks[to]
		if !known {
			served := 0
			for o := range p.staying(group{it.Pool, to}) {
				if o.serving() {
					served++
				}
			}
			lack = served < p.wants(group{it.Pool, to}).count
			lacks[to] = lack
		}
		if lack {
			n++
		}
	}
	return n
}

// create adds an assignment in the form that the topology asks for. replaces names the
// worker that the new one follows, if any.
func (p *planner) create(g group, replaces, why string) *item {
	w := p.wants(g)
	it := p.add(&cluster.Assignment{
		Name: p.freeName(), Pool: g.pool, Role: g.role, Model: w.model, Engine: w.engine, Restarts: p.Topology.Restarts,
		Desire: cluster.DesireRun, Generation: 1, Replaces: replaces,
	}, nil)
	it.why = why
	return it
}

// worth orders workers by their use.
func worth(it *item) int {
	switch {
	case it.Node == "":
		return 0
	case it.Desire == cluster.DesireDrain:
		return 2
	case !it.status.state.Serving():
		return 1
	}
	return 3
}

// freeName returns the lowest free worker name. Names of workers that still drain, and of
// workers that a successor replaces, are taken.
func (p *planner) freeName() string {
	for {
		p.lowest++
		name := cluster.WorkerName(p.lowest)
		replaced := slices.ContainsFunc(p.heirs[name], func(it *item) bool { return it.Replaces == name })
		if p.find(name) == nil && !replaced {
			return name
		}
	}
}
