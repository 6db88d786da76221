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
// concurrent use. Its fields stand in groups by who writes them: otherwise the writer would
// take the cache lines from readers that they need for each block.
type Index struct {
	// Read for each block, written seldom.
	cfg    Config
	seed   uint64
	tables [numParts]atomic.Pointer[table]
	names  atomic.Pointer[[]cluster.InstanceID] // of workers, by number
	_      [64]byte

	epochs epochs // written by each lookup
	_      [64]byte

	moves atomic.Uint64 // blocks that went to another slot
	sets  sets          // readers call get

	mu      sync.Mutex // of writers, and of all that follows
	workers map[cluster.InstanceID]*worker
	numbers recycler
	window  window
	changed [batchSize]uint64 // blocks of the batch whose holders changed
	gone    multiset          // of compactions
	live    [numParts]int     // blocks by table
	buckets int               // of all tables
	held    int               // pairs of a block and a worker's tier
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
	x := &Index{cfg: cfg, seed: rand.Uint64(), workers: map[cluster.InstanceID]*worker{}}
	for i := range x.tables {
		t := newTable(0)
		x.buckets += len(t.buckets)
		x.tables[i].Store(t)
	}
	x.gone.seed = x.seed
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
			for part := range slices.Chunk(c, batchSize) {
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
	log.compact(&x.gone)
	out := make([]uint64, 0, log.listed)
	for _, c := range log.chunks {
		out = append(out, c...)
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
	s := Size{Workers: len(x.workers), Blocks: x.blocks(), Held: x.held, Evicted: x.evicted, Bytes: int64(x.buckets)*bucketBytes + x.sets.bytes}
	for _, w := range x.workers {
		for t := range w.tiers {
			s.Bytes += w.tiers[t].bytes()
		}
	}
	return s
}

func (x *Index) blocks() (n int) {
	for _, live := range x.live {
		n += live
	}
	return n
}
