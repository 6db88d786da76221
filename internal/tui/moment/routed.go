package moment

import (
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Routed sums up the decisions of a snapshot whose workers have reported what they found.
type Routed struct {
	Requests int
	Remote   int // of them: prefilled at another worker
	Blocks   int // of their prompts
	Found    int // of these, in the cache of the chosen worker
	// Predicted counts the blocks that the index promised there.
	Predicted int
	// Reusable counts the blocks that at least one worker held, Reused those of them that
	// were found; of requests whose frontend reports it.
	Reusable, Reused int
	Reports          bool
	// MaxMean compares the blocks that were not found, by decode worker that serves: the
	// most of one, divided by the mean. It is nil with fewer than two workers, or no blocks.
	MaxMean *float64
}

// Routed sums up the decisions of the snapshot.
func (m *Moment) Routed() (r Routed) {
	uncached := map[string]int{}
	for i := range m.Snap.Decisions {
		d := &m.Snap.Decisions[i]
		if d.Phase == cluster.RolePrefill || d.Prefill == "" {
			continue // the decision about the decode worker tells what was found in the end
		}
		r.Requests++
		if d.Prefill != LocalPrefill {
			r.Remote++
		}
		r.Blocks += d.Blocks
		r.Found += d.Overlap
		r.Predicted += d.Predicted
		if d.Reusable != nil {
			r.Reports = true
			r.Reusable += *d.Reusable
			r.Reused += d.Overlap
		}
		uncached[d.Chosen] += max(d.Blocks-d.Overlap, 0)
	}
	most, sum, workers := 0, 0, 0
	for i := range m.Snap.Workers {
		if w := &m.Snap.Workers[i]; w.Role == cluster.RoleDecode && w.State.Serving() {
			workers++
			most, sum = max(most, uncached[w.Name]), sum+uncached[w.Name]
		}
	}
	if workers > 1 && sum > 0 {
		v := float64(most) * float64(workers) / float64(sum)
		r.MaxMean = &v
	}
	return r
}

// Reuse is the share of prompt blocks that were found; nil without any.
func (r *Routed) Reuse() *float64 {
	if r.Blocks <= 0 {
		return nil
	}
	v := float64(r.Found) / float64(r.Blocks)
	return &v
}

// BestOverlap is the largest number of prompt blocks that the index promised of a candidate
// that was allowed; known is false if the decision did not compare caches.
func BestOverlap(d *cluster.RouterDecision) (blocks int, known bool) {
	if !d.WeighsOverlap() || len(d.Candidates) == 0 {
		return 0, false
	}
	blocks = d.Predicted
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Excluded == "" && c.Worker != d.Chosen {
			blocks = max(blocks, c.Overlap)
		}
	}
	return blocks, true
}

// IndexText is what the index promised of the chosen worker, beside that of the best
// candidate: "28/30".
func IndexText(d *cluster.RouterDecision) string {
	best, known := BestOverlap(d)
	if !known {
		return cells.Unknown
	}
	return fmt.Sprintf("%d/%d", d.Predicted, best)
}

// CountOr prints a number that may be unknown.
func CountOr(n int, known bool) string {
	if !known {
		return cells.Unknown
	}
	return strconv.Itoa(n)
}
