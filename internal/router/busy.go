package router

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// BusyLimits say how full a worker may be to get new requests. A limit of zero is off.
type BusyLimits struct {
	// KVShare is the share of the worker's KV blocks that are in use.
	KVShare float64
	// PrefillTokens counts the uncached prompt tokens of requests without output, and
	// PrefillSteps counts them in engine steps of max_num_batched_tokens.
	PrefillTokens int
	PrefillSteps  float64
}

// reason returns which limit a candidate exceeds, "" if none. A limit whose measure is
// unknown is not applied.
func (l BusyLimits) reason(c *Candidate) string {
	if used := max(c.ActiveBlocks, c.KVInUse); l.KVShare > 0 && c.KVBlocks > 0 {
		if share := float64(used) / float64(c.KVBlocks); share > l.KVShare {
			return fmt.Sprintf("busy: %.0f %% of its KV blocks are in use (threshold %.0f %%)", 100*share, 100*l.KVShare)
		}
	}
	most := l.PrefillTokens
	if steps := int(l.PrefillSteps * float64(c.MaxBatchTokens)); steps > 0 && (most == 0 || steps < most) {
		most = steps
	}
	if most > 0 && c.PrefillTokens > most {
		return fmt.Sprintf("busy: %d prompt tokens wait to be computed (threshold %d)", c.PrefillTokens, most)
	}
	return ""
}

// prepare fills in what is in flight at the candidates and excludes those that are busy.
// The caller holds the lock.
func (l *Load) prepare(r Request, v *View) {
	for i := range v.Candidates {
		c := &v.Candidates[i]
		l.fill(r, c)
		if c.Excluded == "" {
			c.Excluded = v.Limits.reason(c)
			c.busy = c.Excluded != ""
		}
	}
	v.Turn = l.turn
}

// Check returns the error and the decision that [Load.Choose] would return if no candidate
// could be chosen at the moment, and nil otherwise. It books nothing.
func (l *Load) Check(r Request, v View, policy string) (Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prepare(r, &v)
	_, err := eligible(v.Candidates)
	return refused(policy, v), err
}

// refused is a decision for none of the candidates.
func refused(policy string, v View) Decision {
	d := Decision{Policy: policy, Candidates: record(v.Candidates, make([][]cluster.CostTerm, len(v.Candidates)))}
	rank(d.Candidates, 0)
	return d
}
