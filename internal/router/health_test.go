package router

import (
	"errors"
	"strings"
	"testing"
)

// An unhealthy worker gets no request while a healthy one could take it, now or when it is
// less busy; where there is no other, it does.
func TestUnhealthyWorkers(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	const hangs, draining = "no answer", "draining"
	for _, tc := range []struct {
		name                string
		unhealthy, excluded [3]string
		busy                [3]bool
		want                string // the chosen worker
		err                 error
	}{
		{"another is chosen", [3]string{hangs, hangs, ""}, [3]string{}, [3]bool{}, "worker-3", nil},
		{"all are unhealthy", [3]string{hangs, hangs, hangs}, [3]string{}, [3]bool{}, "any", nil},
		{"the others must not be chosen", [3]string{"", hangs, ""}, [3]string{draining, "", draining}, [3]bool{}, "worker-2", nil},
		{"it must not be chosen either", [3]string{"", hangs, ""}, [3]string{draining, draining, draining}, [3]bool{}, "", ErrAllExcluded},
		{"the others are busy", [3]string{hangs, "", ""}, [3]string{}, [3]bool{false, true, true}, "", ErrAllBusy},
		{"a busy one that is unhealthy, too", [3]string{hangs, "", ""}, [3]string{}, [3]bool{true, false, true}, "worker-2", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, v := NewLoad(), View{Candidates: workers(0, 1, 2), Limits: BusyLimits{KVShare: 0.9}}
			for i := range v.Candidates {
				c := &v.Candidates[i]
				c.Unhealthy, c.Excluded, c.KVBlocks = tc.unhealthy[i], tc.excluded[i], 100
				if tc.busy[i] {
					c.KVInUse = 99
				}
			}
			for range 2 { // the same candidates are previewed before
				if _, err := l.Preview(Request{ID: "r"}, v, p.Pick); !errors.Is(err, tc.err) {
					t.Errorf("preview: %v", err)
				}
			}
			d, flight, err := l.Choose(Request{ID: "r"}, v, p.Pick)
			defer flight.End()
			if !errors.Is(err, tc.err) || d.Chosen.Worker != tc.want && (tc.want != "any" || d.Chosen.Worker == "") {
				t.Fatalf("chose %q, %v", d.Chosen.Worker, err)
			}
			for _, c := range d.Candidates {
				if strings.Contains(c.Excluded, "unhealthy") && c.Excluded != "unhealthy: "+hangs {
					t.Errorf("%+v", c)
				}
			}
			for i := range v.Candidates {
				v.Candidates[i].Unhealthy, v.Candidates[i].KVInUse = "", 0
			}
			if _, err := l.Preview(Request{ID: "r"}, v, p.Pick); (err == nil) != (tc.excluded == [3]string{} || tc.unhealthy[1] != "" && tc.excluded[1] == "") {
				t.Errorf("when all are well: %v", err)
			}
		})
	}
}
