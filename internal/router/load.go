package router

import (
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Load counts what is in flight on each worker: the requests of its own router, and those
// of other routers that a [Mirror] books. Only Load changes these counts. Its methods are
// safe for concurrent use.
type Load struct {
	mu      sync.Mutex
	workers workerLoads
	turn    uint64
	evicts  evictions
	scratch scratch

	observer func(cluster.FlightChange) // nil for none
	flights  uint64                     // told to the observer so far
}

// NewLoad returns an empty Load.
func NewLoad() *Load { return &Load{} }

// Choose fills in the load of the candidates, excludes those that exceed the limits of the
// view, calls pick and books the request on the chosen worker. It does so in one step, so
// that concurrent requests see each other. The caller must end the flight when the request
// has left the worker; the flight of a failed choice books nothing.
func (l *Load) Choose(r Request, v View, pick func(Request, View) (Decision, error)) (Decision, *Flight, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, err := l.pick(r, v, pick)
	if err != nil {
		return d, &Flight{}, err
	}
	l.turn++
	f := l.book(d.Chosen.ID, r, d.Chosen.Uncached(r))
	l.evicts.chose(r, f.worker, f.prefill, l.workers.all)
	l.workers.prune(v.Candidates)
	l.tellBegin(f)
	return d, f, nil
}

// Preview returns what Choose would choose now, and books nothing.
func (l *Load) Preview(r Request, v View, pick func(Request, View) (Decision, error)) (Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pick(r, v, pick)
}

func (l *Load) pick(r Request, v View, pick func(Request, View) (Decision, error)) (Decision, error) {
	l.fill(r, v)
	avoid(v.Candidates)
	for i := range v.Candidates {
		v.Limits.exclude(&v.Candidates[i])
	}
	v.Turn, v.scratch = l.turn, &l.scratch
	return pick(r, v)
}

// fill sets the fields of the candidates that tell what is in flight there. They may come
// from an earlier preview.
func (l *Load) fill(r Request, v View) {
	l.evicts.look(r, v, l.workers.all)
	reused := l.evicts.reused()
	place, shared := 0, 0
	for i := range v.Candidates {
		c := &v.Candidates[i]
		at, found := l.workers.find(c.ID, place)
		if place = at; !found {
			c.InFlight, c.Prefills, c.PrefillTokens, c.ActiveBlocks, c.Shared, c.Evicts = 0, 0, 0, 0, 0, 0
			continue
		}
		place++
		w := l.workers.all[at]
		c.InFlight, c.Prefills, c.PrefillTokens = w.requests, w.prefills, w.prefill
		c.ActiveBlocks = len(w.blocks) + w.output + w.requests // each has a block that is not full
		if c.Shared = w.shared(r.Hashes, shared); c.Shared > 0 {
			shared = c.Shared
		}
		c.Evicts = w.evicts(c.KVBlocks*r.BlockSize, reused)
	}
}

// book counts a request on a worker; uncached is the part of its prompt that the worker
// has to compute.
func (l *Load) book(id cluster.InstanceID, r Request, uncached int) *Flight {
	w := l.workers.add(id)
	if w.blocks == nil {
		w.blocks = make(map[uint64]int32, len(r.Hashes))
	}
	w.requests++
	w.prefills++
	w.prefill += uncached
	for _, h := range r.Hashes {
		w.blocks[h]++
	}
	return &Flight{load: l, id: id, worker: w, hashes: r.Hashes, prefill: uncached, prefills: true}
}

// InFlight returns the number of requests on one worker.
func (l *Load) InFlight(id cluster.InstanceID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.workers.of(id); w != nil {
		return w.requests
	}
	return 0
}

// Prefills returns the number of requests on one worker whose prompt is not computed yet.
func (l *Load) Prefills(id cluster.InstanceID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.workers.of(id); w != nil {
		return w.prefills
	}
	return 0
}

// Flight is one request on a worker, as its router counts it. The zero value counts
// nothing. Each method may be called again and then changes nothing.
type Flight struct {
	load   *Load // nil counts nothing
	id     cluster.InstanceID
	worker *workerLoad
	hashes []uint64
	number uint64 // for the observer

	// The lock of load guards the rest.
	prefill  int  // tokens still booked
	prefills bool // the prompt is not computed yet
	output   int  // full blocks after those of the prompt
	told     int  // of them, to the observer
	ended    bool
}

// Prefilled records that the worker has computed the prompt: its first token has come.
func (f *Flight) Prefilled() { f.change(cluster.FlightPrefilled, f.endPrefill) }

// Grow records that the output has filled so many KV blocks after those of the prompt.
// Others are told of each eighth that the sequence grows, so that a long one costs few
// messages.
func (f *Flight) Grow(blocks int) {
	if f.load == nil {
		return
	}
	f.load.mu.Lock()
	defer f.load.mu.Unlock()
	if f.ended || blocks <= f.output {
		return
	}
	f.grow(blocks)
	if 8*(blocks-f.told) >= len(f.hashes)+blocks {
		f.told = blocks
		f.load.tell(f, cluster.FlightGrown)
	}
}

func (f *Flight) grow(blocks int) {
	f.worker.output += blocks - f.output
	f.output = blocks
}

// End records that the request has left the worker.
func (f *Flight) End() { f.change(cluster.FlightEnd, f.end) }

func (f *Flight) end() {
	f.endPrefill()
	f.grow(0)
	w := f.worker
	for _, h := range f.hashes {
		if w.blocks[h]--; w.blocks[h] == 0 {
			delete(w.blocks, h)
		}
	}
	if w.requests--; w.requests == 0 {
		w.blocks = nil
	}
	f.ended = true
}

func (f *Flight) endPrefill() {
	f.worker.prefill -= f.prefill
	if f.prefills {
		f.worker.prefills--
	}
	f.prefill, f.prefills = 0, false
}

// change calls do under the lock, unless the flight has ended, and tells the observer.
func (f *Flight) change(kind cluster.FlightKind, do func()) {
	if f.load == nil {
		return
	}
	f.load.mu.Lock()
	defer f.load.mu.Unlock()
	if !f.ended {
		do()
		f.load.tell(f, kind)
	}
}
