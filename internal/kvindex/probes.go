package kvindex

// batchSize is the number of blocks whose buckets are brought into the processor's cache
// together, before they are used one after the other. Between batches of a long call,
// other writers get their turn.
const batchSize = 64

// probes are the blocks of a batch, with the table and the bucket where each is looked for
// first.
type probes struct {
	n       int
	keys    [batchSize]uint64
	mixed   [batchSize]uint64
	tables  [batchSize]*table
	buckets [batchSize]*bucket
}

// prepare fills in the probes of a batch and asks for the buckets where they begin. The
// processor goes on while many buckets are on their way.
func (x *Index) prepare(hashes []uint64, p *probes) {
	p.n = min(len(hashes), batchSize)
	for i, hash := range hashes[:p.n] {
		key := nonzero(hash)
		m := x.mix(key)
		t := x.tables[partOf(m)].Load()
		p.keys[i], p.mixed[i], p.tables[i], p.buckets[i] = key, m, t, &t.buckets[t.home(m)]
	}
	prefetch(&p.buckets, p.n)
}

// overflow asks for the buckets where the probes of a batch go on if they pass their
// first. Waiting for the first ones of a batch is mostly waiting for all.
func (p *probes) overflow(lines *[batchSize]*bucket) {
	n := 0
	for i, b := range p.buckets[:p.n] {
		if !b.ends() {
			t := p.tables[i]
			lines[n] = &t.buckets[t.next(t.home(p.mixed[i]))]
			n++
		}
	}
	prefetch(lines, n)
}

// nonzero replaces the hash that marks empty slots.
func nonzero(hash uint64) uint64 {
	if hash == 0 {
		return 1 << 63
	}
	return hash
}
