package kvindex

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Tier is where a worker keeps a block, the fastest first.
type Tier uint8

// The tiers, as in Dynamo's KV events.
const (
	Device Tier = iota
	Host
	Disk
	numTiers = 3
)

func (t Tier) String() string { return [...]string{"device", "host", "disk"}[t] }

// Config bounds an index.
type Config struct {
	// MaxBytes is about the most memory that the index takes; 0 sets no bound. Beyond it
	// the index forgets blocks that no lookup found lately, of the worker that holds most.
	MaxBytes int64
}

// Index is a prefix index over the KV caches of many workers. All its methods are safe for
// concurrent use.
type Index struct {
	cfg  Config
	seed uint64
	// tables, the sets by id, names and clock are for readers, too.
	tables [numParts]atomic.Pointer[table]
	sets   sets
	epochs epochs
	names  atomic.Pointer[[]cluster.InstanceID] // of workers, by number
	clock  atomic.Uint32                        // evictions, see bound.go

	mu      sync.Mutex // of writers, and of all that follows
	workers map[cluster.InstanceID]*worker
	numbers recycler
	probes  probes // of the writer
	buckets int    // of all tables
	evicted uint64
	stored  uint64 // batches, in a bounded index
}

// worker is what the index knows of one worker.
type worker struct {
	number uint32
	tiers  [numTiers]blockLog
}

func (w *worker) holder(t Tier) holder { return w.number<<2 | uint32(t) }

// New returns an empty index.
func New(cfg Config) *Index {
	x := &Index{cfg: cfg, seed: rand.Uint64(), workers: map[cluster.InstanceID]*worker{}, buckets: numParts * leastSize}
	for i := range x.tables {
		x.tables[i].Store(&table{buckets: make([]bucket, leastSize)})
	}
	x.sets.epochs = &x.epochs
	x.sets.byHash = map[uint64][]*set{}
	x.sets.byID.Store(&[]*setChunk{})
	x.names.Store(&[]cluster.InstanceID{})
	return x
}

// add makes an entry for a worker.
func (x *Index) add(id cluster.InstanceID) *worker {
	w := &worker{number: x.numbers.take()}
	names := slices.Clone(*x.names.Load())
	if int(w.number) == len(names) {
		names = append(names, id)
	} else {
		names[w.number] = id
	}
	x.names.Store(&names)
	x.workers[id] = w
	return w
}

// batchSize is the number of blocks whose buckets are brought into the processor's cache
// together, before they are used one after the other. Between batches of a long call,
// other writers get their turn.
const batchSize = 64

// Store records that a worker has these blocks, by sequence hash, in a tier. Blocks that
// it has there already change nothing.
func (x *Index) Store(id cluster.InstanceID, tier Tier, hashes []uint64) {
	for len(hashes) > 0 {
		part := hashes[:min(len(hashes), batchSize)]
		hashes = hashes[len(part):]
		x.storeBatch(id, tier, part)
	}
}

func (x *Index) storeBatch(id cluster.InstanceID, tier Tier, hashes []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.workers[id]
	if w == nil {
		w = x.add(id)
	}
	h, log, clock := w.holder(tier), &w.tiers[tier], x.clock.Load()
	c := transition{sets: &x.sets, change: x.sets.with, holder: h}
	p := &x.probes
	x.touch(hashes, p)
	for i, hash := range hashes {
		key := nonzero(hash)
		at, ok := x.tables[partOf(p.mixed[i])].Load().find(p.mixed[i], key)
		switch {
		case !ok:
			x.insert(p.mixed[i], key, h+1)
		case x.sets.contains(at.ref(), h):
			continue
		default:
			at.setRef(c.next(at.ref()))
		}
		log.append(hash, clock)
	}
	c.end()
	if x.cfg.MaxBytes > 0 {
		x.bound()
	}
}

// Remove records that a worker has lost these blocks in a tier.
func (x *Index) Remove(id cluster.InstanceID, tier Tier, hashes []uint64) {
	for len(hashes) > 0 {
		part := hashes[:min(len(hashes), batchSize)]
		hashes = hashes[len(part):]
		x.mu.Lock()
		if w := x.workers[id]; w != nil {
			w.tiers[tier].remove(x.removeBatch(w.holder(tier), part))
		}
		x.mu.Unlock()
	}
}

// removeBatch takes a holder from blocks and returns those that it had, until the next
// call.
func (x *Index) removeBatch(h holder, hashes []uint64) (had []uint64) {
	c := transition{sets: &x.sets, change: x.sets.without, holder: h}
	p := &x.probes
	x.touch(hashes, p)
	had = p.had[:0]
	for i, hash := range hashes {
		at, ok := x.tables[partOf(p.mixed[i])].Load().find(p.mixed[i], nonzero(hash))
		switch {
		case !ok || !x.sets.contains(at.ref(), h):
			continue
		case at.ref() == h+1:
			x.remove(p.mixed[i], at)
		default:
			at.setRef(c.next(at.ref()))
		}
		had = append(had, hash)
	}
	c.end()
	return had
}

// probes are the hashes of a batch, mixed, with the tables and buckets where they are
// looked for first.
type probes struct {
	mixed   [batchSize]uint64
	tables  [batchSize]*table
	buckets [batchSize]*bucket
	had     [batchSize]uint64
}

// touch fills in the probes of a batch and loads the buckets that they meet. The loads do
// not depend on each other, so the processor waits for many at a time: first for the
// buckets where the probes begin, then for those after them where probes may go on.
func (x *Index) touch(hashes []uint64, p *probes) (sum uint64) {
	hashes = hashes[:min(len(hashes), batchSize)]
	for i, h := range hashes {
		m := x.mix(nonzero(h))
		t := x.tables[partOf(m)].Load()
		p.mixed[i], p.tables[i], p.buckets[i] = m, t, &t.buckets[t.home(m)]
	}
	for _, b := range p.buckets[:len(hashes)] {
		sum += atomic.LoadUint64(&b.keys[0])
	}
	for i, b := range p.buckets[:len(hashes)] {
		if !b.ends() {
			t := p.tables[i]
			sum += atomic.LoadUint64(&t.buckets[t.next(t.home(p.mixed[i]))].keys[0])
		}
	}
	return sum
}

// nonzero replaces the hash that marks empty slots.
func nonzero(hash uint64) uint64 {
	if hash == 0 {
		return 1 << 63
	}
	return hash
}

// transition changes the holders of blocks. It remembers the last change, because
// consecutive blocks mostly have the same holders.
type transition struct {
	sets     *sets
	change   func(uint32, holder) uint32
	holder   holder
	from, to uint32
	known    bool
}

// next returns the ref that takes the place of a block's ref, with its use; the use of
// the old one ends.
func (c *transition) next(from uint32) uint32 {
	if !c.known || c.from != from {
		c.end()
		c.sets.hold(from) // so that its id means the same while c remembers it
		c.from, c.to, c.known = from, c.change(from, c.holder), true
	}
	c.sets.hold(c.to)
	c.sets.release(from)
	return c.to
}

func (c *transition) end() {
	if c.known {
		c.sets.release(c.from)
		c.sets.release(c.to)
		c.known = false
	}
}

// Clear forgets all blocks of a worker, in time proportional to their number.
func (x *Index) Clear(id cluster.InstanceID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w := x.workers[id]; w != nil {
		x.clear(w)
	}
}

func (x *Index) clear(w *worker) {
	for t := range w.tiers {
		log := w.tiers[t]
		w.tiers[t] = blockLog{}
		for _, c := range log.chunks {
			for part := range slices.Chunk(c.hashes, batchSize) {
				x.removeBatch(w.holder(Tier(t)), part)
			}
		}
	}
}

// Drop forgets a worker, in time proportional to the number of its blocks.
func (x *Index) Drop(id cluster.InstanceID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w := x.workers[id]; w != nil {
		x.clear(w)
		delete(x.workers, id)
		x.numbers.give(w.number, &x.epochs)
	}
}

// Held counts the blocks of a worker by tier.
func (x *Index) Held(id cluster.InstanceID) (blocks [numTiers]int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w := x.workers[id]; w != nil {
		for t := range w.tiers {
			blocks[t] = w.tiers[t].live()
		}
	}
	return blocks
}

// Snapshot returns the blocks of a worker in a tier, in the order in which it stored them.
// Store takes them again.
func (x *Index) Snapshot(id cluster.InstanceID, tier Tier) []uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.workers[id]
	if w == nil {
		return nil
	}
	log := &w.tiers[tier]
	log.compact()
	out := make([]uint64, 0, log.listed)
	for _, c := range log.chunks {
		out = append(out, c.hashes...)
	}
	return out
}

// Size is what an index holds and takes.
type Size struct {
	Workers int
	Blocks  int // blocks that somebody holds
	Held    int // pairs of a block and a worker's tier
	Bytes   int64
	Evicted uint64 // pairs forgotten to keep MaxBytes
}

// Size counts what the index holds.
func (x *Index) Size() Size {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.size()
}

func (x *Index) size() Size {
	s := Size{Workers: len(x.workers), Evicted: x.evicted, Bytes: int64(x.buckets)*64 + x.sets.bytes}
	for i := range x.tables {
		s.Blocks += x.tables[i].Load().live
	}
	for _, w := range x.workers {
		for t := range w.tiers {
			s.Held += w.tiers[t].live()
			s.Bytes += w.tiers[t].bytes()
		}
	}
	return s
}
