package nixl

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h histogram
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 11 * time.Microsecond, time.Second, 10 * time.Second, 11 * time.Second} {
		h.observe(d)
	}
	s := h.snapshot()
	bounds := HistogramBounds()
	if bounds[0] != 10*time.Microsecond || bounds[1] != 20*time.Microsecond || bounds[3] != 100*time.Microsecond || bounds[len(bounds)-1] != 10*time.Second {
		t.Errorf("bounds = %v", bounds)
	}
	if s.Counts[0] != 2 || s.Counts[1] != 1 || s.Counts[15] != 1 || s.Counts[18] != 1 || s.Counts[19] != 1 || s.Count() != 6 {
		t.Errorf("counts = %v", s.Counts)
	}
	if s.Sum != 22*time.Second+21*time.Microsecond {
		t.Errorf("sum = %s", s.Sum)
	}
}

// What peers have cost stays in the sums when there are too many to be listed.
func TestPathsAreBounded(t *testing.T) {
	ps := paths{limit: 2, open: map[pathKey]*traffic{}, past: map[string]Traffic{}}
	for i, peer := range []string{"a", "b", "a", "c", "d"} {
		ps.path(peer, "tcp").ended(Write, Success, Telemetry{Start: time.Unix(int64(i+1), 0), Bytes: 1 << i, Descs: 1, XferDuration: time.Millisecond})
	}
	ps.path("d", "tcp").ended(Write, ErrCanceled, Telemetry{Start: time.Unix(9, 0)})
	if _, c := ps.open[pathKey{"c", "tcp"}]; len(ps.open) != 2 || !c || ps.find("d", "tcp").TxBytes != 16 {
		t.Errorf("open = %+v", ps.open)
	}
	for range 2 { // asking does not change it
		sum := ps.byTransport()["tcp"]
		if sum.TxBytes != 31 || sum.Transfers != 5 || sum.Errors[ErrCanceled] != 1 || sum.XferTime.Count() != 5 {
			t.Errorf("sum = %+v", sum)
		}
	}
}
