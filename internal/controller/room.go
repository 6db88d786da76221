package controller

import "github.com/dynctl/dynctl/internal/cluster"

// spec is what decides how much memory a worker takes.
type spec struct {
	model  cluster.ModelSpec
	engine cluster.EngineSpec
	tower  bool // the vision tower alone
}

func specOf(it *item) spec { return spec{it.Model, it.Engine, !it.Role.HoldsKV()} }

// form collects what the workers of one model and engine report about their memory.
type form struct {
	spec
	sizes map[int64]int // workers by the bytes that they report
	pools map[pool]int  // workers by the blocks that they report
	// need is the most that one of them reports, in bytes. Zero means that none has
	// reported it; the node then finds out.
	need int64
}

// pool is what a worker reports about its blocks.
type pool struct {
	blockBytes int64
	blockSize  int // tokens
}

func (p *planner) formOf(s spec) *form {
	f := p.forms[s]
	if f == nil {
		f = &form{spec: s, sizes: map[int64]int{}, pools: map[pool]int{}}
		p.forms[s] = f
	}
	return f
}

// enlist counts a worker's report for its form. What was derived from the reports is
// stale if that changes what they say as a whole.
func (p *planner) enlist(it *item) {
	f, st := p.formOf(specOf(it)), it.status
	it.form = f
	if st.memory > 0 {
		f.sizes[st.memory]++
		if st.memory > f.need {
			f.need, p.stale = st.memory, true
		}
	}
	if st.pool.blockBytes > 0 {
		f.pools[st.pool]++
		p.stale = p.stale || f.pools[st.pool] == 1
	}
}

// discharge is the opposite of enlist.
func (p *planner) discharge(it *item) {
	f, st := it.form, it.status
	if st.memory > 0 {
		if f.sizes[st.memory]--; f.sizes[st.memory] == 0 {
			delete(f.sizes, st.memory)
			f.need, p.stale = 0, true
			for bytes := range f.sizes {
				f.need = max(f.need, bytes)
			}
		}
	}
	if st.pool.blockBytes > 0 {
		if f.pools[st.pool]--; f.pools[st.pool] == 0 {
			delete(f.pools, st.pool)
			p.stale = true
		}
	}
}

// estimate returns the size in bytes that a KV pool would have, scaled from workers of
// the same model. It is accurate enough to detect a pool that fits nowhere.
func (p *planner) estimate(s spec) (bytes int64) {
	for _, f := range p.forms {
		if f.model != s.model {
			continue
		}
		for k := range f.pools {
			st := cluster.WorkerStatus{BlockBytes: k.blockBytes, Stats: cluster.WorkerStats{BlockSize: k.blockSize}}
			bytes = max(bytes, st.PoolBytes(f.engine, s.engine))
		}
	}
	return bytes
}

// bytesOf returns the memory in bytes that a worker takes of its device.
func bytesOf(it *item) int64 {
	switch {
	case it.status.memory > 0:
		return it.status.memory
	case it.Desire == cluster.DesireRun:
		return it.form.need
	}
	return 0
}

// host is a node with the workers that are placed there.
type host struct {
	*cluster.Node
	index    int // in planner.hosts
	devices  []device
	none     []device // one, without memory, for the workers of servers that run already
	workers  int      // on devices
	cordoned bool
	touched  bool // its workers changed since the rankings were brought up to date
}

// device is a device of a host with its workers.
type device struct {
	*cluster.Device
	host    *host
	cpu     bool
	workers int
	used    int64 // bytes
	shared  int64 // bytes that workers of the device can use, see [cluster.Node.MemoryOf]
}

// bare reports whether a device stands for none.
func (d *device) bare() bool { return d.ID == "" }

// on returns the device of the host that a worker has, or nil.
func (h *host) on(it *item) *device {
	id := it.Device
	if id == "" && it.Engine.Server.Attached() {
		return &h.none[0]
	}
	for i := range h.devices {
		if h.devices[i].ID == id {
			return &h.devices[i]
		}
	}
	return nil
}

// where returns the host and the device of a worker, nil if they do not exist.
func (p *planner) where(it *item) (*host, *device) {
	h := p.byID[it.Node]
	if h == nil {
		return nil, nil
	}
	return h, h.on(it)
}

// roleOn is a role on a host.
type roleOn struct {
	host int
	role cluster.Role
}

// count adds a worker n times to its place.
func (p *planner) count(it *item, n int) {
	h, d := p.where(it)
	if it.deleted || h == nil {
		return
	}
	if d == nil || !d.bare() {
		h.workers += n
		p.roles[roleOn{h.index, it.Role}] += n
	}
	if d != nil {
		d.workers += n
		if n > 0 {
			it.bytes = bytesOf(it)
		}
		d.used += int64(n) * it.bytes
	}
	if !h.touched {
		h.touched = true
		p.touched = append(p.touched, h)
	}
}

// refresh brings up to date what is derived from the workers.
func (p *planner) refresh() {
	if p.stale {
		p.stale, p.rankings = false, nil
		for _, it := range p.work {
			if _, d := p.where(it); d != nil && !it.deleted {
				d.used -= it.bytes
				it.bytes = bytesOf(it)
				d.used += it.bytes
			}
		}
	}
	for _, h := range p.touched {
		h.touched = false
		for _, r := range p.rankings {
			p.rerank(r, h)
		}
	}
	p.touched = p.touched[:0]
}

// fits reports whether a device has room for a worker of a ranking. mine is the worker
// itself, which may be there already.
func (d *device) fits(r *ranking, mine *item) bool {
	used := d.used
	if mine != nil && !mine.deleted && mine.Node == d.host.ID && mine.Device == d.ID {
		used -= mine.bytes
	}
	return d.MemoryBytes <= 0 || r.need <= d.MemoryBytes-used && r.estimate <= d.shared
}
