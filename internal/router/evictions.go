package router

import (
	"math"

	"github.com/dynctl/dynctl/internal/cluster"
)

// evictions estimates what computing a prompt costs the cache of a worker. Each block that
// is computed in a full cache evicts the one that was used longest ago. The more a worker
// has computed lately in relation to its cache, the younger that is, and the more likely
// it comes again. Lately ends exponentially, with as many tokens as all caches hold.
//
// One cache of the fleet's total size would evict the oldest block of all workers. Prompts
// that are not cached go to the worker whose oldest block is likely the oldest.
type evictions struct {
	workers  map[cluster.InstanceID]faded
	clock    float64 // prompt tokens that all workers have computed
	capacity float64 // tokens that the caches of the last view hold; 0 if unknown
	// prompts are the tokens of this router's own prompts lately, computed those that no
	// cache had.
	prompts, computed faded
}

// faded is a sum whose parts count less the older they are.
type faded struct {
	sum float64
	at  float64 // the clock when sum was right
}

func (e *evictions) now(f faded) float64 {
	if e.capacity <= 0 {
		return 0
	}
	return f.sum * math.Exp(-(e.clock-f.at)/e.capacity)
}

// look takes note of the caches of a view.
func (e *evictions) look(r Request, v View) {
	e.capacity = 0
	for i := range v.Candidates {
		e.capacity += float64(v.Candidates[i].KVBlocks * r.BlockSize)
	}
}

// share returns the share of the blocks computed on a worker that evict one that comes
// again; 0 if its cache is of unknown size.
func (e *evictions) share(r Request, c *Candidate) float64 {
	pool, prompts := float64(c.KVBlocks*r.BlockSize), e.now(e.prompts)
	if pool <= 0 || prompts <= 0 {
		return 0
	}
	reused := max(0, 1-e.now(e.computed)/prompts)
	return reused * e.now(e.workers[c.ID]) / pool
}

// add counts prompt tokens that a worker computes.
func (e *evictions) add(id cluster.InstanceID, tokens int) {
	sum := e.now(e.workers[id]) + float64(tokens)
	e.clock += float64(tokens)
	e.workers[id] = faded{sum, e.clock}
}

// chose counts a choice of this router.
func (e *evictions) chose(r Request, v View, id cluster.InstanceID, uncached int) {
	prompts, computed := e.now(e.prompts)+float64(r.PromptTokens), e.now(e.computed)+float64(uncached)
	e.add(id, uncached)
	e.prompts, e.computed = faded{prompts, e.clock}, faded{computed, e.clock}
	if len(e.workers) > 64+4*len(v.Candidates) { // most of them are gone
		kept := map[cluster.InstanceID]faded{}
		for _, c := range v.Candidates {
			if f, ok := e.workers[c.ID]; ok {
				kept[c.ID] = f
			}
		}
		e.workers = kept
	}
}
