package cluster

import "testing"

// What is told of caches is what was weighed, or what was found where the request went.
func TestOverlapIsKnownWhereSomebodyLooked(t *testing.T) {
	chosen, other := RouteCandidate{Worker: "worker-1", Overlap: 3}, RouteCandidate{Worker: "worker-2", Overlap: 2}
	for _, tc := range []struct {
		name    string
		weighed string
		prefill string // known once the worker has told
		c       RouteCandidate
		blocks  int
		known   bool
	}{
		{"by load, just decided", TermLoad, "", chosen, 0, false},
		{"by load, found", TermLoad, "local", chosen, 5, true},
		{"by load, another one", TermLoad, "local", other, 0, false},
		{"by overlap, just decided", TermUncached, "", chosen, 3, true},
		{"by overlap, found", TermUncached, "local", chosen, 5, true},
		{"by overlap, less found than predicted", TermUncached, "local", RouteCandidate{Worker: "worker-1", Overlap: 9}, 5, true},
		{"by overlap, another one", TermUncached, "local", other, 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := RouterDecision{Chosen: "worker-1", Prefill: tc.prefill, Overlap: 5, Weighed: []string{tc.weighed}}
			blocks, known := d.OverlapAt(&tc.c)
			if known != tc.known || known && blocks != tc.blocks {
				t.Errorf("%d blocks, known %t; want %d, %t", blocks, known, tc.blocks, tc.known)
			}
		})
	}
}
