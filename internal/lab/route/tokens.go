package route

import (
	"slices"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
)

// number gives the requests of a workload, which are in order of arrival, their tokens and
// hashes. Each block has a number, and all of its tokens are that number. So blocks with
// the same id have the same tokens in all requests. What answers add is new, unless a
// later request continues the answer.
//
// A request continues an earlier one if its prompt begins with all full blocks of the
// earlier prompt and has room for the answer, the last of these blocks came with the
// earlier request, and no request before it continues that one. The answer then is what
// the later prompt has in this place.
func number(requests []Request) {
	known := map[uint64]uint32{}
	next := make([]*Request, len(requests)) // the request that continues this one
	last := map[uint64]int{}                // request whose last full block it is and that brought it
	for i := range requests {
		r := &requests[i]
		r.ids = make([]uint32, (r.Tokens+r.Output-1)/BlockSize+1)
		full, brought := r.Tokens/BlockSize, false
		for k, id := range r.blocks[:min(len(r.blocks), len(r.ids))] {
			n, old := known[id]
			if !old {
				n = uint32(len(known) + 1)
				known[id] = n
			}
			r.ids[k] = n
			if k >= full {
				break
			}
			brought = !old
			if o, ok := last[id]; ok && requests[o].Tokens+requests[o].Output <= r.Tokens {
				delete(last, id)
				next[o] = r
			}
		}
		if brought {
			last[r.blocks[full-1]] = i
		}
	}
	fresh := uint32(len(known))
	var local []uint64 // hashes of blocks by number
	var block []uint32
	for i := len(requests) - 1; i >= 0; i-- {
		r := &requests[i]
		for k := r.Tokens / BlockSize; k < len(r.ids); k++ {
			if next[i] != nil {
				r.ids[k] = next[i].ids[k]
			} else if r.ids[k] == 0 {
				fresh++
				r.ids[k] = fresh
			}
		}
		r.chain = make([]uint64, (r.Tokens+r.Output-1)/BlockSize)
		for k := range r.chain {
			n := int(r.ids[k])
			for n >= len(local) {
				local = append(local, make([]uint64, n+1)...)
			}
			if local[n] == 0 {
				block = fill(block[:0], r.ids[k:], BlockSize)
				local[n] = blockhash.Local(block, cluster.DefaultHashSeed)
			}
			r.chain[k] = local[n]
			if k > 0 {
				r.chain[k] = blockhash.Next(r.chain[k-1], local[n], cluster.DefaultHashSeed)
			}
		}
		r.Hashes = r.chain[:r.Tokens/BlockSize]
	}
}

// fill appends n tokens of the blocks with these numbers.
func fill(to, ids []uint32, n int) []uint32 {
	at := len(to)
	to = slices.Grow(to, n)[:at+n]
	for ; n > 0; n -= BlockSize {
		block := to[at : at+min(n, BlockSize)]
		for i := range block {
			block[i] = ids[0]
		}
		at, ids = at+BlockSize, ids[1:]
	}
	return to
}
