package detail

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// A history is bounded, has each snapshot once, and starts anew where time goes back.
func TestLatencyHistory(t *testing.T) {
	var h LatencyHistory
	add := func(at int) {
		h.Add(&cluster.Snapshot{Time: time.Unix(int64(at), 0), Latency: cluster.Latency{Requests: uint64(at)}})
	}
	for i := range keepLatencies + 10 {
		add(i)
		add(i)
	}
	if n := len(h.past); n != keepLatencies || len(h.at) != n || h.past[0].Requests != 10 || h.past[n-1].Requests != keepLatencies+9 {
		t.Errorf("%d samples from %d", n, h.past[0].Requests)
	}
	add(5)
	if len(h.past) != 1 || h.past[0].Requests != 5 {
		t.Errorf("after winding back: %d samples", len(h.past))
	}
}
