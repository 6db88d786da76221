package moment

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

// LocalPrefill stands for the decode worker itself where a decision names the prefill worker.
const LocalPrefill = "local"

// Chosen returns the router's costs for the worker it chose; nil if it
// chose none or did not report them.
func Chosen(d *cluster.RouterDecision) *cluster.RouteCandidate {
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Worker == d.Chosen && d.Chosen != "" {
			return c
		}
	}
	return nil
}

// secondBest is the cheapest other candidate that was allowed.
func secondBest(d *cluster.RouterDecision) *cluster.RouteCandidate {
	var best *cluster.RouteCandidate
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Worker != d.Chosen && c.Excluded == "" && (best == nil || c.Cost < best.Cost) {
			best = c
		}
	}
	return best
}

// CostText prints what a candidate would cost.
func CostText(f float64) string {
	if !cells.Finite(f) {
		return cells.Unknown
	}
	if f >= 100000 || f <= -100000 {
		return cells.Compact(f)
	}
	return fmt.Sprintf("%.1f", f)
}

// SecondText is the runner-up with what it would have cost more, or why the
// prompt was computed locally. "w2" is short for worker-2.
func SecondText(d *cluster.RouterDecision) string {
	if d.Prefill == LocalPrefill && d.PrefillWhy != "" {
		return d.PrefillWhy
	}
	second, first := secondBest(d), Chosen(d)
	if second == nil {
		return cells.Unknown
	}
	name := second.Worker
	if n, err := cluster.WorkerNumber(name); err == nil {
		name = fmt.Sprintf("w%d", n)
	}
	if first == nil || !cells.Finite(second.Cost-first.Cost) {
		return name
	}
	return fmt.Sprintf("%s %+.0f", name, second.Cost-first.Cost)
}

// Stages says where a request was prefilled and where it is decoded.
func Stages(d *cluster.RouterDecision) (prefillAt, decodeAt string) {
	prefillAt, decodeAt = d.Prefill, d.Chosen
	if d.Phase == cluster.RolePrefill {
		prefillAt, decodeAt = d.Chosen, ""
	}
	return cells.OrUnknown(prefillAt), cells.OrUnknown(decodeAt)
}

// OverlapText is the share of a prompt that was found in the cache, once the worker has told.
func OverlapText(d *cluster.RouterDecision) string {
	if d.Prefill == "" {
		return cells.Unknown
	}
	return fmt.Sprintf("%d/%d", d.Overlap, d.Blocks)
}
