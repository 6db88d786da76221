package router

import "fmt"

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
	if l.PrefillSteps > 0 && c.MaxBatchTokens > 0 {
		if steps := int(l.PrefillSteps * float64(c.MaxBatchTokens)); l.PrefillTokens == 0 || steps < most {
			most = steps // 0 for less than a token: nothing may wait
		}
	} else if l.PrefillTokens == 0 {
		return ""
	}
	if c.PrefillTokens > most {
		return fmt.Sprintf("busy: %d prompt tokens wait to be computed (threshold %d)", c.PrefillTokens, most)
	}
	return ""
}

// exclude marks a candidate that exceeds the limits, and unmarks one that did so at an
// earlier preview.
func (l BusyLimits) exclude(c *Candidate) {
	if c.busy {
		c.Excluded, c.busy = "", false
	}
	if c.Excluded == "" && l != (BusyLimits{}) {
		c.Excluded = l.reason(c)
		c.busy = c.Excluded != ""
	}
}
