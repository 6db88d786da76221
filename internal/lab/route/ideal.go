package route

import (
	"container/heap"
	"container/list"
	"math"
)

// Ideal returns the share of blocks that one cache of n blocks for all workers would
// reuse, if it served the requests one after the other: with LRU eviction, and with the
// eviction of what is used again last (Belady), which no cache beats. As in a real cache,
// blocks of answers are kept, too, a block counts only if all blocks before it are there,
// and the last token of a prompt is always computed.
func Ideal(requests []Request, n int) (lru, belady float64) {
	total := 0
	for _, r := range requests {
		total += len(r.Hashes)
	}
	return float64(pooledLRU(requests, n)) / float64(max(1, total)), float64(pooledBelady(requests, n)) / float64(max(1, total))
}

func pooledLRU(requests []Request, n int) (hits int) {
	order, at := list.New(), map[uint64]*list.Element{}
	for _, r := range requests {
		leading := true
		for k, h := range r.chain {
			if e := at[h]; e != nil {
				order.MoveToBack(e)
				if leading && k < r.reusable() {
					hits++
				}
			} else {
				leading = false
				at[h] = order.PushBack(h)
			}
			if order.Len() > n {
				delete(at, order.Remove(order.Front()).(uint64))
			}
		}
	}
	return hits
}

func pooledBelady(requests []Request, n int) (hits int) {
	uses := map[uint64][]int{} // of a block, the first is the next
	for i, r := range requests {
		for _, h := range r.Hashes {
			uses[h] = append(uses[h], i)
		}
	}
	cached := map[uint64]int{} // block -> its next use
	var queue farthest
	for i, r := range requests {
		leading := true
		for k, h := range r.chain {
			u := uses[h]
			for len(u) > 0 && u[0] <= i {
				u = u[1:]
			}
			uses[h] = u
			if _, ok := cached[h]; ok {
				if leading && k < r.reusable() {
					hits++
				}
			} else {
				leading = false
			}
			next := math.MaxInt
			if len(u) > 0 {
				next = u[0]
			}
			cached[h] = next
			heap.Push(&queue, use{h, next})
			for len(cached) > n {
				last := heap.Pop(&queue).(use)
				if at, ok := cached[last.hash]; ok && at == last.next {
					delete(cached, last.hash)
				}
			}
		}
	}
	return hits
}

// use is the next use of a block, as it was once.
type use struct {
	hash uint64
	next int
}

// farthest is a heap of uses, the last one first.
type farthest []use

func (f farthest) Len() int           { return len(f) }
func (f farthest) Less(i, j int) bool { return f[i].next > f[j].next }
func (f farthest) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *farthest) Push(x any)        { *f = append(*f, x.(use)) }
func (f *farthest) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}
