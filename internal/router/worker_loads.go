package router

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// workerLoad is what is in flight on one worker, and what it has computed lately.
type workerLoad struct {
	requests int
	prefills int              // requests whose prompt is being computed, or waits for that
	prefill  int              // prompt tokens to compute
	blocks   map[uint64]int32 // sequence hash of a prompt's block -> requests that use it; nil while idle
	output   int              // full blocks of outputs
	lately   faded            // prompt tokens that it has computed
}

// shared counts the leading blocks of a prompt that requests in flight use. guess is the
// likely answer. A hash names all blocks before it, too, so what is shared is a beginning.
func (w *workerLoad) shared(hashes []uint64, guess int) int {
	holds := func(n int) bool { return w.blocks[hashes[n-1]] > 0 }
	if len(w.blocks) == 0 || len(hashes) == 0 || !holds(1) {
		return 0
	}
	low, high := 1, len(hashes)+1 // it holds low blocks, and not high
	if low < guess && guess < high {
		if holds(guess) {
			low = guess
		} else {
			high = guess
		}
	}
	for step := 1; low+1 < high; step *= 2 {
		if n := min(low+step, (low+high)/2); holds(n) {
			low = n
		} else {
			high = n
		}
	}
	return low
}

// workerLoads are the workers of a Load, in the order of their ids. Idle ones stay for a
// while, because of what they have computed.
type workerLoads struct {
	ids []cluster.InstanceID
	all []*workerLoad
}

// find returns the place of a worker, or the one where it would stand. hint is where to
// look first: the place after the one of the worker before, if workers come in order.
func (l *workerLoads) find(id cluster.InstanceID, hint int) (at int, found bool) {
	if hint < len(l.ids) && l.ids[hint] == id {
		return hint, true
	}
	return slices.BinarySearch(l.ids, id)
}

// of returns the load of a worker, nil if nothing is known of it.
func (l *workerLoads) of(id cluster.InstanceID) *workerLoad {
	if at, found := l.find(id, 0); found {
		return l.all[at]
	}
	return nil
}

// add returns the load of a worker, a new one if there is none.
func (l *workerLoads) add(id cluster.InstanceID) *workerLoad {
	at, found := l.find(id, 0)
	if !found {
		l.ids, l.all = slices.Insert(l.ids, at, id), slices.Insert(l.all, at, &workerLoad{})
	}
	return l.all[at]
}

// prune forgets idle workers that are no candidates, once they are many: most of them are
// gone.
func (l *workerLoads) prune(candidates []Candidate) {
	if len(l.ids) <= 64+4*len(candidates) {
		return
	}
	kept := make(map[cluster.InstanceID]bool, len(candidates))
	for i := range candidates {
		kept[candidates[i].ID] = true
	}
	ids, all := l.ids[:0], l.all[:0]
	for i, w := range l.all {
		if w.requests > 0 || kept[l.ids[i]] {
			ids, all = append(ids, l.ids[i]), append(all, w)
		}
	}
	clear(l.all[len(all):])
	l.ids, l.all = ids, all
}
