package route

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

// dynamoKnobs are the settings of Dynamo's costs. See dynamoDefaults.
type dynamoKnobs struct {
	// OverlapWeight of version 0.8 multiplies the prompt tokens to compute.
	OverlapWeight float64
	// The rest is of version 1.5. OverlapCredit is what a cached block takes off the cost,
	// less for busy workers if CreditDecay is set. HostWeight and DiskWeight are what blocks
	// in those tiers count of one on the device.
	OverlapCredit, CreditDecay, HostWeight, DiskWeight float64
	// PrefillScale multiplies the prompt blocks to compute.
	PrefillScale float64
	// RequestWeight is the cost of each request in flight.
	RequestWeight float64
}

// dynamoDefaults are Dynamo's defaults.
var dynamoDefaults = dynamoKnobs{OverlapWeight: 1, OverlapCredit: 1, HostWeight: 0.75, DiskWeight: 0.25, PrefillScale: 1}

// priceDynamo08 is the cost of Dynamo 0.8 (lib/llm/src/kv_router/scheduler.rs): prompt blocks
// to compute, and blocks in use. Dynamo counts only what is cached, and not what is being computed.
func priceDynamo08(k dynamoKnobs) router.Price {
	return func(r router.Request, _ router.View, free []router.Candidate, terms *router.Terms) {
		block := float64(max(1, r.BlockSize))
		queue, uncached, active := terms.Add(cluster.TermQueue), terms.Add(cluster.TermUncached), terms.Add(cluster.TermActive)
		for i, c := range free {
			queue[i] = k.OverlapWeight * float64(c.PrefillTokens) / block
			uncached[i] = k.OverlapWeight * float64(max(0, r.PromptTokens-c.Overlap.Blocks()*r.BlockSize)) / block
			active[i] = float64(c.ActiveBlocks + len(r.Hashes) - c.Shared)
		}
	}
}

// priceDynamo15 is the cost of Dynamo 1.5 (kv-router, selector/default.rs) without shared
// caches and taints.
func priceDynamo15(k dynamoKnobs) router.Price {
	return func(r router.Request, _ router.View, free []router.Candidate, terms *router.Terms) {
		block := float64(max(1, r.BlockSize))
		least := free[0].PrefillTokens
		for _, c := range free {
			least = min(least, c.PrefillTokens)
		}
		queue, uncached := terms.Add(cluster.TermQueue), terms.Add(cluster.TermUncached)
		active, load := terms.Add(cluster.TermActive), terms.Add(cluster.TermLoad)
		for i, c := range free {
			behind := float64(c.PrefillTokens-least) / block / float64(max(1, len(r.Hashes)))
			credit := k.OverlapCredit / (1 + k.CreditDecay*behind)
			gain := credit*float64(c.Overlap.Device) + k.HostWeight*float64(c.Overlap.Host) + k.DiskWeight*float64(c.Overlap.Disk)
			own := k.PrefillScale * (float64(r.PromptTokens)/block - gain)
			queue[i] = k.PrefillScale * float64(c.PrefillTokens) / block
			uncached[i] = max(-queue[i], own) // the sum of both is at least 0
			active[i] = float64(c.ActiveBlocks + len(r.Hashes) - c.Shared)
			load[i] = k.RequestWeight * float64(c.InFlight)
		}
	}
}
