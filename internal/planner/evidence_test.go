package planner

import (
	"testing"
	"time"
)

// saying is an evaluator that says the same of one prefill and one decode worker, and that more hold any load.
type saying struct{ miss, load float64 }

func (s *saying) Evaluate(plan Plan, f Forecast) (Outcome, error) {
	switch n := plan.Prefill + plan.Decode; {
	case n < 2:
		return Outcome{Miss: 1, MissTTFT: 1, PrefillLoad: 2, DecodeLoad: 2}, nil
	case n > 2:
		return Outcome{PrefillLoad: 0.1, DecodeLoad: 0.1}, nil
	}
	return Outcome{Miss: s.miss, MissTTFT: s.miss, PrefillLoad: s.load, DecodeLoad: 0.5}, nil
}

// What is seen of the workers counts for more than what is predicted for them, at the rate at which it was seen.
func TestEvidence(t *testing.T) {
	for name, tc := range map[string]struct {
		before, arrived int // of 5 s: those of half a minute, and then
		missed          int // one request of so many; 0: none
		miss, load      float64
		grows           bool
	}{
		"it holds, whatever is predicted":  {70, 70, 0, 0.9, 0.6, false},
		"a few miss":                       {70, 70, 40, 0.9, 0.6, false},
		"too many miss":                    {70, 70, 10, 0.3, 0.6, true},
		"too many miss, nearly predicted":  {70, 70, 10, 0.08, 0.6, true},
		"more come than was seen":          {40, 70, 0, 0.3, 0.6, true},
		"more come, and it is near":        {40, 70, 0, 0.08, 0.6, false},
		"queues have only not grown yet":   {70, 70, 0, 0.9, 0.96, true},
		"too little was seen":              {2, 2, 0, 0.3, 0.6, true},
		"too little was seen, and is near": {2, 2, 0, 0.08, 0.6, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
			said := &saying{load: 0.5}
			s.p.evaluator = said
			requests := 0
			s.edit = func(o *Observation) {
				for i := range o.Requests {
					if requests++; tc.missed > 0 && requests%tc.missed == 0 {
						o.Requests[i].TTFT = time.Minute
					}
				}
			}
			if _, n := s.run(12, tc.before); n != 0 {
				t.Fatalf("%d changes before", n)
			}
			said.miss, said.load = tc.miss, tc.load
			d, n := s.run(3, tc.arrived)
			if grows := n > 0; grows != tc.grows {
				t.Errorf("%d changes: %q", n, d.Lines())
			}
			if _, told := d.Number(ReasonSeenRequests); !tc.grows && !told {
				t.Errorf("it does not say why: %q", d.Lines())
			}
		})
	}
}

// Requests that ended before the workers changed, or right after, say nothing of the workers as they are.
func TestEvidenceOfOthers(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.p.evaluator = &saying{load: 0.5}
	s.run(30, 70)
	if e := s.p.seen(at(s.now)); e != (evidence{arrived: 840, seconds: 60, finished: 480}) {
		t.Fatalf("of a minute: %+v", e)
	}
	s.plan.Prefill++ // by hand
	s.tick(70)
	if e := s.p.seen(at(s.now)); e != (evidence{}) {
		t.Errorf("of a plan that is new: %+v", e)
	}
	s.run(4, 70)
	if e := s.p.seen(at(s.now)); e.seconds != 10 {
		t.Errorf("20 s later: %+v", e)
	}
}
