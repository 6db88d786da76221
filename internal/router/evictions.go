package router

import "math"

// evictions estimates what computing a prompt costs the cache of a worker. Each block that
// is computed in a full cache evicts the one that was used longest ago. The more a worker
// has computed lately in relation to its cache, the younger that is, and the more likely
// it comes again. Lately ends exponentially, with as many tokens as all caches hold.
//
// One cache of the fleet's total size would evict the oldest block of all workers. Prompts
// that are not cached go to the worker whose oldest block is likely the oldest.
type evictions struct {
	clock float64 // prompt tokens that all workers have computed
	// capacity is how many tokens the caches of the last view hold; 0 if unknown. Sums fade
	// with the last one that was known.
	capacity, fading float64
	base             float64 // the clock for which sums are kept
	// prompts are the tokens of this router's own prompts lately, computed those that no
	// cache had.
	prompts, computed faded
}

// faded is a sum whose parts count less the older they are, as it was at the base of the
// clock: of all sums the same share is left at any time.
type faded float64

// left returns the share of the sums that is left.
func (e *evictions) left() float64 {
	if e.fading <= 0 {
		return 1
	}
	return math.Exp(-(e.clock - e.base) / e.fading)
}

// mostFaded bounds clock - base, in capacities, so that no sum overflows.
const mostFaded = 32

// look takes note of the caches of a view.
func (e *evictions) look(r Request, v View, workers []*workerLoad) {
	blocks := 0
	for i := range v.Candidates {
		blocks += v.Candidates[i].KVBlocks
	}
	e.capacity = float64(blocks) * float64(r.BlockSize)
	if e.capacity > 0 && e.capacity != e.fading {
		e.rebase(workers)
		e.fading = e.capacity
	}
}

// rebase moves the base to now.
func (e *evictions) rebase(workers []*workerLoad) {
	left := faded(e.left())
	e.prompts, e.computed = e.prompts*left, e.computed*left
	for _, w := range workers {
		w.lately *= left
	}
	e.base = e.clock
}

// reused returns the share of prompt tokens that was cached lately, times the share of the
// sums that is left; 0 while no cache is of known size.
func (e *evictions) reused() float64 {
	if e.capacity <= 0 || e.prompts <= 0 {
		return 0
	}
	return float64(max(0, 1-e.computed/e.prompts)) * e.left()
}

// evicts returns the share of the blocks computed on a worker that evict one that comes
// again; 0 if its cache of pool tokens is of unknown size.
func (w *workerLoad) evicts(pool int, reused float64) float64 {
	if pool <= 0 {
		return 0
	}
	return reused * float64(w.lately) / float64(pool)
}

// add counts prompt tokens that a worker computes. They do not fade the worker's own sum.
func (e *evictions) add(w *workerLoad, tokens int, workers []*workerLoad) {
	if e.fading > 0 && e.clock-e.base > mostFaded*e.fading {
		e.rebase(workers)
	}
	now := float64(w.lately)*e.left() + float64(tokens)
	e.clock += float64(tokens)
	w.lately = faded(now / e.left())
}

// chose counts a choice of this router.
func (e *evictions) chose(r Request, w *workerLoad, uncached int, workers []*workerLoad) {
	before := e.left()
	prompts, computed := float64(e.prompts)*before+float64(r.PromptTokens), float64(e.computed)*before+float64(uncached)
	e.add(w, uncached, workers)
	e.prompts, e.computed = faded(prompts/e.left()), faded(computed/e.left())
}
