package router

import "github.com/dynctl/dynctl/internal/cluster"

// priceKV weighs the caches of the workers against their load, in blocks:
//
//   - queue: prompt blocks that wait to be computed there, which the request waits for;
//   - overlap: blocks of its own prompt that the worker would have to compute;
//   - later: overlap once for each prompt of this length that waits per worker on average
//     or comes while this one is computed, because so many wait for its computing, too;
//   - active: blocks of the prompt, times the share of the worker's KV pool that requests
//     in flight would use with this one. A block that several use counts once.
//
// Later makes work that is not needed dearer the busier the workers are, without a weight
// to choose: waiting for a busy worker harms one request, computing anew harms all that
// follow. Active prefers the worker with the most room: what requests use is lost to the
// cache, and a request that finds no room waits. Blocks that are being computed for an
// earlier prompt count as cached, so that equal prompts that come at once go to the same
// worker.
//
// A worker with a long queue loses a prompt that it has cached as soon as waiting costs
// more than computing the prompt elsewhere. docs/routing.md compares this cost
// with others.
func priceKV(r Request, _ View, free []Candidate) [][]cluster.CostTerm {
	block := float64(max(1, r.BlockSize))
	waiting := 0.0 // prompts like this one, for each worker
	known, used := 0, 0
	for _, c := range free {
		waiting += float64(c.PrefillTokens) / float64(max(1, r.PromptTokens)) / float64(len(free))
		known = max(known, c.KVBlocks)
		used = max(used, c.ActiveBlocks+len(r.Hashes))
	}
	if known == 0 {
		known = used // no worker has told its size yet: then the fullest one counts as full
	}
	out := make([][]cluster.CostTerm, len(free))
	for i, c := range free {
		own := float64(c.Uncached(r)) / block
		pool := c.KVBlocks
		if pool == 0 {
			pool = known
		}
		share := float64(c.ActiveBlocks+len(r.Hashes)-c.Shared) / float64(max(1, pool))
		out[i] = []cluster.CostTerm{
			{Name: cluster.TermQueue, Value: float64(c.PrefillTokens) / block},
			{Name: cluster.TermOverlap, Value: own},
			{Name: cluster.TermLater, Value: own * (waiting + float64(c.Uncached(r))/float64(max(1, r.PromptTokens)))},
			{Name: cluster.TermActive, Value: share * float64(max(1, len(r.Hashes)))},
		}
	}
	return out
}
