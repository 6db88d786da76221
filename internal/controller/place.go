package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// ranking finds the best device for workers of one role and form. It is a tournament of
// the hosts: each inner entry of the tree is the better one of its two children, so that
// the change of a host costs as many comparisons as the tree is high.
type ranking struct {
	role    cluster.Role
	form    *form
	settled bool // without the hosts that arrived lately
	pack    bool
	node    string // the name of the only host; empty for all

	need, estimate int64           // bytes, of a worker
	runs           map[string]bool // whether the engine runs on a device, by device id
	tree           []choice        // the root is 1, the hosts are the last half
}

// choice is the best device among some hosts.
type choice struct {
	best *device // nil if no device fits
	open bool    // a host takes workers, although perhaps none of this engine
}

// rankingOf returns the ranking for workers like it.
func (p *planner) rankingOf(it *item, settled bool) *ranking {
	p.refresh()
	f, w := p.formOf(specOf(it)), p.wants(groupOf(it))
	pack := w.placement == cluster.PlacementPack
	for _, r := range p.rankings {
		if r.role == it.Role && r.form == f && r.settled == settled && r.pack == pack && r.node == w.node {
			return r
		}
	}
	size := 1
	for size < len(p.hosts) {
		size *= 2
	}
	r := &ranking{
		role: it.Role, form: f, settled: settled, pack: pack, node: w.node,
		need: f.need, estimate: p.estimate(f.spec), runs: map[string]bool{}, tree: make([]choice, 2*size),
	}
	for i, h := range p.hosts {
		r.tree[size+i] = p.leaf(r, h)
	}
	for i := size - 1; i > 0; i-- {
		r.tree[i] = p.better(r, r.tree[2*i], r.tree[2*i+1], nil)
	}
	p.rankings = append(p.rankings, r)
	return r
}

// rerank brings a ranking up to date after the change of a host.
func (p *planner) rerank(r *ranking, h *host) {
	i := len(r.tree)/2 + h.index
	r.tree[i] = p.leaf(r, h)
	for i /= 2; i > 0; i /= 2 {
		r.tree[i] = p.better(r, r.tree[2*i], r.tree[2*i+1], nil)
	}
}

func (p *planner) leaf(r *ranking, h *host) choice {
	if r.settled && p.Settling[h.ID] {
		return choice{}
	}
	return p.within(r, h, nil, nil)
}

// within returns the best device of one host for the worker mine, which may be nil, as if
// the workers but were nowhere.
func (p *planner) within(r *ranking, h *host, mine *item, but []*item) choice {
	if h.cordoned || r.node != "" && h.Name != r.node {
		return choice{}
	}
	devices := h.devices
	if r.form.engine.Server.Attached() {
		devices = h.none
	}
	c := choice{open: len(devices) == 0}
	for i := range devices {
		d := &devices[i]
		if !d.fits(r, mine) {
			continue
		}
		c.open = true
		runs, known := r.runs[d.ID]
		if !known {
			runs = r.form.engine.RunsOn(d.ID)
			r.runs[d.ID] = runs
		}
		if runs {
			c = p.better(r, c, choice{d, true}, but)
		}
	}
	return c
}

// without returns the best device outside of some hosts, among those below entry i of the
// tree, which stand for the hosts from lo to hi.
func (p *planner) without(r *ranking, skip []*host, i, lo, hi int) choice {
	inside := false
	for _, h := range skip {
		inside = inside || lo <= h.index && h.index < hi
	}
	switch {
	case !inside:
		return r.tree[i]
	case hi-lo == 1:
		return choice{}
	}
	mid := (lo + hi) / 2
	return p.better(r, p.without(r, skip, 2*i, lo, mid), p.without(r, skip, 2*i+1, mid, hi), nil)
}

// choose returns the best device for a worker, as if the workers but were nowhere.
func (p *planner) choose(it *item, settled bool, but ...*item) choice {
	r := p.rankingOf(it, settled)
	mine := p.find(it.Name)
	var few [3]*host
	apart := few[:0] // hosts that the ranking sees with it and but
	for _, o := range append(but, mine) {
		if o != nil && p.byID[o.Node] != nil {
			apart = append(apart, p.byID[o.Node])
		}
	}
	best := r.tree[1]
	if best.best != nil && slices.Contains(apart, best.best.host) {
		best = p.without(r, apart, 1, 0, len(r.tree)/2)
	}
	for _, h := range apart {
		if !settled || !p.Settling[h.ID] || h.ID == it.Node {
			best = p.better(r, best, p.within(r, h, mine, but), but)
		}
	}
	return best
}

// better returns the better one of two choices.
func (p *planner) better(r *ranking, x, y choice, but []*item) choice {
	c := choice{x.best, x.open || y.open}
	if x.best == nil || y.best != nil && p.compare(r, y.best, x.best, but) < 0 {
		c.best = y.best
	}
	return c
}

// compare orders devices, the best one first: hosts that prefer the role; accelerators
// before CPUs; to pack, the host with the most workers; the device with the fewest
// workers for its size; the host with the fewest workers of the role; the host's name.
func (p *planner) compare(r *ranking, x, y *device, but []*item) int {
	p.compared++
	if order := cmp.Or(yesFirst(x.host.Prefers(r.role), y.host.Prefers(r.role)), yesFirst(!x.cpu, !y.cpu)); order != 0 {
		return order
	}
	a, b := p.loadOf(r, x, but), p.loadOf(r, y, but)
	if r.pack && a.host != b.host {
		return b.host - a.host
	}
	return cmp.Or(
		cmp.Compare(share(a.device+1, x.Device), share(b.device+1, y.Device)),
		a.role-b.role,
		cmp.Compare(x.host.Name, y.host.Name),
		cmp.Compare(x.ID, y.ID),
		x.host.index-y.host.index,
	)
}

// load is the number of workers on a device, on its host, and on its host in a role.
type load struct{ device, host, role int }

func (p *planner) loadOf(r *ranking, d *device, but []*item) load {
	l := load{d.workers, d.host.workers, p.roles[roleOn{d.host.index, r.role}]}
	for _, o := range but {
		if o == nil || o.deleted || o.Node != d.host.ID || (o.Device == "") != d.bare() {
			continue
		}
		l.host--
		if o.Role == r.role {
			l.role--
		}
		if o.Device == d.ID {
			l.device--
		}
	}
	return l
}

// share returns the number of workers of a device relative to its size.
func share(workers int, d *cluster.Device) float64 {
	return float64(workers) / float64(max(d.Cores, 1))
}

func yesFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// place chooses a device for a worker, or returns the reason why there is none.
func (p *planner) place(it *item) (*device, string) {
	c := p.choose(it, false)
	switch {
	case c.best != nil:
		return c.best, ""
	case len(p.hosts) == 0:
		return nil, "no node is up"
	case p.wants(groupOf(it)).node != "":
		return nil, "the node " + p.wants(groupOf(it)).node + " is not up, or is drained"
	case c.open:
		return nil, "no node has a device " + it.Engine.WantedDevices()
	case p.cordoned == len(p.hosts):
		return nil, "all nodes are drained"
	}
	s := specOf(it)
	return nil, fmt.Sprintf("no device has %.1f GiB free", float64(max(p.formOf(s).need, p.estimate(s)))/(1<<30))
}
