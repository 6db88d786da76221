package route

import (
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

// Contender is a policy with the settings that it may be tuned by.
type Contender struct {
	Name     string
	Settings []router.Policy // the first has the defaults
}

// Own is the product's policy. It has no settings.
func Own() Contender { return known(router.KV) }

// Opponents are the policies that the product's own is compared with.
func Opponents() []Contender {
	out := []Contender{known(router.RoundRobin), known(router.LeastLoaded)}
	var v08, v15, llmd, sticky, predicted []router.Policy
	for _, weight := range []float64{1, 0.5, 2, 4, 8} {
		k := dynamoDefaults
		k.OverlapWeight = weight
		v08 = append(v08, router.ByCost(fmt.Sprintf("weight %g", weight), priceDynamo08(k)))
	}
	for _, scale := range []float64{1, 2, 4} {
		for _, decay := range []float64{0, 1} {
			k := dynamoDefaults
			k.PrefillScale, k.CreditDecay = scale, decay
			v15 = append(v15, router.ByCost(fmt.Sprintf("scale %g, decay %g", scale, decay), priceDynamo15(k)))
		}
	}
	for _, weight := range []float64{2, 1, 4, 8} {
		llmd = append(llmd, router.ByCost(fmt.Sprintf("prefix %g", weight), priceLLMD(weight)))
	}
	for _, seconds := range []float64{18, 1, 2, 5} {
		sticky = append(sticky, router.ByCost(fmt.Sprintf("T %gs", seconds), priceSticky(seconds)))
	}
	for _, broken := range []float64{5, 1, math.Inf(1)} {
		predicted = append(predicted, router.ByCost(fmt.Sprintf("break %g s", broken), pricePredicted(broken)))
	}
	return append(out, Contender{"dynamo-0.8", v08}, Contender{"dynamo-1.5", v15}, Contender{"llm-d-prefix", llmd}, Contender{"sticky", sticky}, Contender{"predicted", predicted})
}

func known(name string) Contender {
	p, err := router.NewPolicy(name)
	if err != nil {
		panic(err) // a name of the package itself
	}
	return Contender{name, []router.Policy{p}}
}

// each prices the candidates one by one.
func each(of func(r router.Request, c router.Candidate) float64) router.Price {
	return func(r router.Request, _ router.View, free []router.Candidate, terms *router.Terms) {
		cost := terms.Add(cluster.TermUncached)
		for i, c := range free {
			cost[i] = of(r, c)
		}
	}
}

// uncached counts the tokens that are not in a worker's cache yet.
func uncached(r router.Request, c router.Candidate) float64 {
	return float64(max(1, r.PromptTokens-c.Overlap.Blocks()*r.BlockSize))
}

// priceLLMD is llm-d's weighted sum of scorers from 0 to 1: the precise prefix cache with
// a weight, queue depth and KV utilization with weight 1.
func priceLLMD(prefix float64) router.Price {
	return func(r router.Request, v router.View, free []router.Candidate, terms *router.Terms) {
		least, most := math.Inf(1), 0.0
		longest := 1
		for _, c := range free {
			least, most = min(least, float64(c.InFlight)), max(most, float64(c.InFlight))
			longest = max(longest, c.Overlap.Blocks())
		}
		each(func(_ router.Request, c router.Candidate) float64 {
			queue := 1.0
			if most > least {
				queue = (most - float64(c.InFlight)) / (most - least)
			}
			used := float64(c.ActiveBlocks) / float64(max(1, c.KVBlocks))
			return -(prefix*float64(c.Overlap.Blocks())/float64(longest) + queue + 1 - used)
		})(r, v, free, terms)
	}
}

// priceSticky keeps to the workers with at least 0.8 of the longest overlap and takes the
// least loaded of them, unless it is behind the idlest worker by more than what a worker
// computes in that many seconds.
func priceSticky(seconds float64) router.Price {
	return func(r router.Request, v router.View, free []router.Candidate, terms *router.Terms) {
		longest, rate := 0, 0.0
		idlest := math.Inf(1)
		for _, c := range free {
			longest = max(longest, c.Overlap.Blocks())
			rate = max(rate, c.PrefillRate)
			idlest = min(idlest, float64(c.PrefillTokens))
		}
		load := func(c router.Candidate) float64 { return float64(c.PrefillTokens) + uncached(r, c) }
		holds := func(c router.Candidate) bool {
			return float64(c.Overlap.Blocks()) >= 0.8*float64(longest)
		}
		nearest := math.Inf(1) // prompt tokens that wait at the best of those that hold it
		for _, c := range free {
			if holds(c) {
				nearest = min(nearest, float64(c.PrefillTokens))
			}
		}
		stick := rate == 0 || nearest-idlest <= rate*seconds
		each(func(_ router.Request, c router.Candidate) float64 {
			if stick && !holds(c) {
				return load(c) + 1e12
			}
			return load(c)
		})(r, v, free, terms)
	}
}

// pricePredicted predicts the time to the first token from the measured rate, and the
// time of a token from the requests and blocks in use, weighted 80 to 20. A cached prefix
// no longer counts for a worker whose prediction is worse than the best by so many seconds.
func pricePredicted(broken float64) router.Price {
	return func(r router.Request, v router.View, free []router.Candidate, terms *router.Terms) {
		fastest := 1.0 // stands for the speed of workers that have not computed yet
		for _, c := range free {
			fastest = max(fastest, c.PrefillRate)
		}
		seconds := func(c router.Candidate, tokens float64) float64 {
			if c.PrefillRate > 0 {
				return tokens / c.PrefillRate
			}
			return tokens / fastest
		}
		best := math.Inf(1)
		for _, c := range free {
			best = min(best, seconds(c, float64(c.PrefillTokens)))
		}
		each(func(_ router.Request, c router.Candidate) float64 {
			wait := float64(c.PrefillTokens)
			t := seconds(c, wait+uncached(r, c))
			if seconds(c, wait) > best+broken {
				t = seconds(c, wait+float64(r.PromptTokens))
			}
			step := H100.step(batch{decode: c.InFlight + 1, context: (c.ActiveBlocks + len(r.Hashes)) * BlockSize}).Seconds()
			return 0.8*t + 0.2*step
		})(r, v, free, terms)
	}
}
