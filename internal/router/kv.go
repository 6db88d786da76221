package router

import "github.com/dynctl/dynctl/internal/cluster"

// priceKV weighs the caches of the workers against their load, in blocks:
//
//   - queue: prompt blocks that wait to be computed there, which the request waits for;
//   - uncached: blocks of its own prompt that the worker would have to compute;
//   - later: uncached once for each prompt of this length that waits per worker on average
//     or comes while this one is computed, because so many wait for its computing, too;
//   - evict: uncached, times the share of these blocks that push out one that comes again;
//     see evictions;
//   - active: blocks of the prompt, times the share of the worker's KV pool that requests
//     in flight would use with this one, where a block that several use counts once, full
//     blocks of answers count, and each request has one that it fills; or the share that
//     they would read in a step if all were like this one, if that is more.
//
// Later makes work that is not needed dearer the busier the workers are, without a weight
// to choose: waiting for a busy worker harms one request, computing anew harms all that
// follow. Evict fills all caches to the same age. Active prefers the worker with the most
// room: what requests use is lost to the cache, a request that finds no room waits, and
// every step waits for what decoding reads.
// Blocks that are being computed for an earlier prompt count as cached, so that equal
// prompts that come at once go to the same worker.
//
// A worker with a long queue loses a prompt that it has cached as soon as waiting costs
// more than computing the prompt elsewhere. docs/routing.md compares this cost with others.
func priceKV(r Request, _ View, free []Candidate, terms *Terms) {
	block := float64(max(1, r.BlockSize))
	prompt, blocks := float64(max(1, r.PromptTokens)), float64(max(1, len(r.Hashes)))
	waiting := 0.0 // prompts like this one, for each worker
	fullest := 1   // stands for the pool of workers that have not told its size
	for i := range free {
		c := &free[i]
		waiting += float64(c.PrefillTokens) / prompt / float64(len(free))
		fullest = max(fullest, c.ActiveBlocks+len(r.Hashes), c.KVBlocks)
	}
	queue, uncached := terms.Add(cluster.TermQueue), terms.Add(cluster.TermUncached)
	later, evict, active := terms.Add(cluster.TermLater), terms.Add(cluster.TermEvict), terms.Add(cluster.TermActive)
	for i := range free {
		c := &free[i]
		tokens := float64(c.Uncached(r))
		own := tokens / block
		used, pool := c.ActiveBlocks+len(r.Hashes)-c.Shared, fullest
		if c.KVBlocks > 0 {
			used, pool = max(used, c.InFlight*len(r.Hashes)), c.KVBlocks
		}
		queue[i] = float64(c.PrefillTokens) / block
		uncached[i] = own
		later[i] = own * (waiting + tokens/prompt)
		evict[i] = own * c.Evicts
		active[i] = float64(used) / float64(pool) * blocks
	}
}
