package router

import "github.com/dynctl/dynctl/internal/cluster"

// priceKV weighs the caches of the workers against their load, in blocks:
//
//   - queue: prompt blocks that wait to be computed there, which the request waits for;
//   - overlap: blocks of its own prompt that the worker would have to compute;
//   - later: the same once for each prompt of this length that waits per worker on
//     average, because so many come behind the request and wait for its computing, too;
//   - active: blocks that requests in flight would use with this one, where a block that
//     several use counts once.
//
// Queue, overlap and active are the cost of Dynamo 0.8 (lib/llm/src/kv_router/scheduler.rs)
// with both weights 1. Later makes work that is not needed dearer the busier the workers
// are, without a weight to choose: waiting for a busy worker harms one request, computing
// anew harms all that follow. Blocks that are being computed for an earlier prompt count as
// cached, so that equal prompts that come at once go to the same worker.
//
// A worker with a long queue loses a prompt that it has cached as soon as the queue takes
// longer than computing the prompt elsewhere costs.
func priceKV(r Request, _ View, free []Candidate) [][]cluster.CostTerm {
	block := float64(max(1, r.BlockSize))
	waiting := 0.0 // prompts like this one, for each worker
	for _, c := range free {
		waiting += float64(c.PrefillTokens) / float64(max(1, r.PromptTokens)) / float64(len(free))
	}
	out := make([][]cluster.CostTerm, len(free))
	for i, c := range free {
		own := float64(c.Uncached(r)) / block
		out[i] = []cluster.CostTerm{
			{Name: cluster.TermQueue, Value: float64(c.PrefillTokens) / block},
			{Name: cluster.TermOverlap, Value: own},
			{Name: cluster.TermLater, Value: own * waiting},
			{Name: cluster.TermActive, Value: float64(c.ActiveBlocks + len(r.Hashes) - c.Shared)},
		}
	}
	return out
}
