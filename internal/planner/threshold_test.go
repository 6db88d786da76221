package planner

import (
	"slices"
	"strings"
	"testing"
)

func TestThresholds(t *testing.T) {
	mixed := []Length{{ISL: 100}, {ISL: 120}, {ISL: 130}, {ISL: 900, Cached: 700}, {ISL: 1000}, {ISL: 1030}, {ISL: 5000}, {ISL: 9000}}
	for _, tc := range []struct {
		name    string
		lengths []Length
		present int
		want    []int
	}{
		{"nothing seen", nil, 64, nil},
		{"one length, which all leave", lengths(5, 3000, 1), 64, nil},
		{"one length, which all stay", lengths(5, 3000, 1), 4096, []int{0}},
		{"powers of two that differ in the requests", mixed, 0, []int{128, 256, 1024, 2048, 8192}},
		{"not those of the present one", mixed, 1023, []int{0, 128, 256, 2048, 8192}},
		{"nothing of a few", append(lengths(95, 3000, 1), lengths(5, 100, 1)...), 0, nil},
	} {
		if got := thresholds(tc.lengths, tc.present); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// chats has the requests of a window be one long prompt for eight short ones.
func chats(o *Observation) {
	for i := range o.Requests {
		o.Requests[i].Length = Length{ISL: 400, OSL: 100}
		if i%9 == 0 {
			o.Requests[i].ISL = 12_000
		}
	}
}

// Where decode workers that compute the short prompts make a prefill worker needless, the threshold is changed first and
// alone; the worker goes when that was seen for the cool-down; and that is where it stays.
func TestThresholdSavesAWorker(t *testing.T) {
	for _, tc := range []struct {
		thresholds bool
		want       Plan
	}{{true, Plan{1, 1, 512}}, {false, Plan{2, 1, 0}}} {
		cfg := config()
		cfg.Aggregate, cfg.Prefill.Min, cfg.Thresholds = false, 1, tc.thresholds
		s := newScene(t, cfg, Plan{Prefill: 2, Decode: 1})
		s.edit = chats
		var made []Decision
		var times []float64
		for range 100 {
			if d := s.tick(65); d.Changes() {
				made, times = append(made, d), append(times, s.now)
			}
		}
		if s.plan != tc.want {
			t.Errorf("thresholds %v: %v, want %v: %s", tc.thresholds, s.plan, tc.want, s.last.Refusal)
		}
		if !tc.thresholds {
			continue
		}
		if len(made) != 2 || made[0].Cause != CauseThreshold || made[0].Proposal != (Plan{2, 1, 512}) || len(made[0].Actions) != 0 || made[1].Cause != CauseDown || times[1]-times[0] < cfg.CoolDown.Seconds() {
			t.Fatalf("at %v: %+v", times, made)
		}
		lines := strings.Join(made[0].Lines(), "\n")
		for _, want := range []string{"2P1D -> 2P1D: change disagg.max_local_prefill_tokens from 0 to 512, because fewer workers carry", "1P1D with local prompts to 512 tokens, 2 devices: "} {
			if !strings.Contains(lines, want) {
				t.Errorf("no %q in\n%s", want, lines)
			}
		}
		if d, n := s.run(200, 65); n > 0 {
			t.Errorf("%d changes at rest, to %v (%s)", n, s.plan, d.Cause)
		}
	}
}

// The threshold that somebody else, or the planner before, has changed stays for the cool-down, and so do the workers.
func TestThresholdsCoolDown(t *testing.T) {
	cfg := config()
	cfg.Aggregate, cfg.Prefill.Min, cfg.Thresholds = false, 1, true
	for name, change := range map[string]func(s *scene){
		"by hand": func(s *scene) { s.plan.MaxLocalPrefill = 64 },
		"by the planner before": func(s *scene) {
			s.p = newPlanner(t, cfg)
			s.p.Recall(Change{Time: at(s.now), From: Plan{2, 1, 64}, To: Plan{2, 1, 0}, Cause: CauseThreshold})
		},
	} {
		s := newScene(t, cfg, Plan{Prefill: 2, Decode: 1})
		s.edit = chats
		s.run(1, 15) // too few to decide
		change(s)
		began := s.now
		for range 40 {
			if d := s.tick(65); d.Changes() {
				break
			}
		}
		if s.plan != (Plan{2, 1, 512}) || s.now-began < cfg.CoolDown.Seconds() || s.now-began > 2*cfg.CoolDown.Seconds() {
			t.Errorf("%s: %+v after %v s: %q", name, s.plan, s.now-began, s.last.Lines())
		}
	}
}

// The threshold stays for the cool-down even where another one would carry what the present one does not.
func TestThresholdStaysUnderOverload(t *testing.T) {
	cfg := config()
	cfg.Devices, cfg.Aggregate, cfg.Prefill.Min, cfg.Thresholds = 3, false, 1, true
	s := newScene(t, cfg, Plan{Prefill: 2, Decode: 1})
	s.edit = chats
	s.p.evaluator = capacities{{2, 1, 64}: 5, {2, 1, 512}: 60}
	s.run(1, 15)
	s.plan.MaxLocalPrefill = 64
	began := s.now
	for range 30 {
		if d := s.tick(65); d.Changes() {
			break
		}
	}
	if s.plan != (Plan{2, 1, 512}) || s.now-began < cfg.CoolDown.Seconds() {
		t.Errorf("%+v after %v s: %q", s.plan, s.now-began, s.last.Lines())
	}
}

// capacities is an evaluator of plans that carry so many requests a second. More workers carry at least as many, all others
// next to none.
type capacities map[Plan]float64

func (c capacities) Evaluate(plan Plan, f Forecast) (o Outcome, _ error) {
	most := 0.001
	for p, v := range c {
		if p.Prefill <= plan.Prefill && p.Decode <= plan.Decode && p.MaxLocalPrefill == plan.MaxLocalPrefill {
			most = max(most, v)
		}
	}
	o.DecodeLoad = f.Rate / most
	if o.DecodeLoad > 1 {
		o.Miss = 1 - 1/o.DecodeLoad
	}
	o.PrefillLoad, o.MissTTFT, o.MissITL = o.DecodeLoad, o.Miss, o.Miss
	return o, nil
}

// Another threshold is chosen where it pays clearly.
func TestThresholdPays(t *testing.T) {
	now, other := Plan{2, 1, 0}, Plan{1, 1, 64}
	for _, tc := range []struct {
		name string
		by   capacities
		want Plan
	}{
		{"a device less, with room", capacities{now: 10, other: 11.5}, other},
		{"a device less, with hardly any room", capacities{now: 10, other: 10.2}, now},
		{"no device less", capacities{now: 10, {2, 1, 64}: 100}, now},
		{"alone it holds", capacities{now: 9, other: 11.5}, other},
		{"none holds, and it misses clearly less", capacities{now: 5, {2, 1, 64}: 8}, Plan{2, 1, 64}},
		{"none holds, and it misses hardly less", capacities{now: 5, {2, 1, 64}: 5.1}, now},
	} {
		cfg := config()
		cfg.Devices, cfg.Aggregate = 3, false
		s := &search{cfg: cfg, evaluator: tc.by, forecast: Forecast{Rate: 10}, thresholds: []int{64, 128}, seen: map[Plan]Candidate{}}
		best, _, err := s.cheapest(now)
		if err != nil || best.Plan != tc.want {
			t.Errorf("%s: %+v, %v", tc.name, best, err)
		}
	}
}

// What one decision takes of a plan with another threshold.
func TestThresholdInTurn(t *testing.T) {
	for _, tc := range []struct {
		name             string
		by               capacities
		from, to, wanted Plan
	}{
		{"the same", nil, Plan{1, 2, 64}, Plan{3, 2, 64}, Plan{3, 2, 64}},
		{"the threshold before workers go", capacities{{3, 2, 64}: 20}, Plan{3, 2, 0}, Plan{2, 1, 64}, Plan{3, 2, 64}},
		{"workers before the threshold where they start", nil, Plan{1, 1, 0}, Plan{1, 2, 64}, Plan{1, 2, 0}},
		{"together where workers change roles", nil, Plan{2, 1, 0}, Plan{1, 2, 64}, Plan{1, 2, 64}},
		{"together where it meant nothing before", capacities{{0, 2, 64}: 20}, Plan{0, 2, 0}, Plan{1, 2, 64}, Plan{1, 2, 64}},
	} {
		s := &search{cfg: config(), evaluator: tc.by, forecast: Forecast{Rate: 10}, seen: map[Plan]Candidate{}}
		if got := s.inTurn(tc.from, tc.to); got != tc.wanted {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.wanted)
		}
	}
}

// Fewer workers under another threshold that no decision leads to do not keep those that may go as things are.
func TestThresholdThatIsOutOfReach(t *testing.T) {
	cfg := config()
	cfg.Aggregate, cfg.Prefill.Min, cfg.Thresholds = false, 1, true
	s := newScene(t, cfg, Plan{Prefill: 4, Decode: 1})
	s.edit = chats
	s.p.evaluator = capacities{{4, 1, 0}: 40, {3, 1, 0}: 30, {1, 2, 512}: 40}
	for range 40 {
		if d := s.tick(50); d.Changes() {
			break
		}
	}
	if s.plan != (Plan{3, 1, 0}) {
		t.Errorf("%v: %q", s.plan, s.last.Lines())
	}
}

// Two plans of the same cost do not take turns in advice: what was advised stays until something is cheaper.
func TestAdviceStays(t *testing.T) {
	for mode, most := range map[Mode]int{ModeAdvise: 1, ModeAct: 1} {
		cfg := config()
		cfg.Mode, cfg.Aggregate, cfg.Prefill.Min = mode, false, 1
		s := newScene(t, cfg, Plan{Prefill: 2, Decode: 2})
		turn := &turns{}
		s.p.evaluator = turn
		seen := map[Plan]bool{}
		for range 20 {
			turn.odd = !turn.odd
			current := s.plan
			if d := s.tick(100); d.Changes() {
				seen[d.Proposal] = true
			}
			if mode == ModeAdvise {
				s.plan, s.pending = current, nil
			}
		}
		if len(seen) != most {
			t.Errorf("%s: %v", mode, seen)
		}
	}
}

// turns is an evaluator by which 2P3D and 3P2D hold, one of them better at one time and the other one at the next.
type turns struct{ odd bool }

func (e *turns) Evaluate(plan Plan, _ Forecast) (o Outcome, _ error) {
	switch plan.Prefill + plan.Decode {
	case 5:
		o.Miss = 0.02
		if e.odd == (plan.Prefill == 3) {
			o.Miss = 0.01
		}
	case 4, 3, 2:
		o.Miss, o.MissTTFT, o.MissITL, o.PrefillLoad, o.DecodeLoad = 1, 0.04, 0.04, 2, 2
		if plan.Prefill == 2 && plan.Decode == 2 { // both are a step from here
			o.Miss = 0.5
		}
	}
	return o, nil
}

// Advice does not outlive what it was for: other workers, or a cheaper plan.
func TestAdviceEnds(t *testing.T) {
	cfg := config()
	cfg.Devices, cfg.Aggregate, cfg.Prefill.Min, cfg.Prefill.Max = 6, false, 1, 3
	for _, tc := range []struct {
		name    string
		by      capacities
		advised Plan
		want    Plan
	}{
		{"kept", capacities{{2, 3, 0}: 20, {3, 2, 0}: 20}, Plan{3, 2, 0}, Plan{3, 2, 0}},
		{"holds no more", capacities{{2, 3, 0}: 20, {3, 2, 0}: 9}, Plan{3, 2, 0}, Plan{2, 3, 0}},
		{"another is cheaper", capacities{{2, 2, 0}: 20, {3, 2, 0}: 20}, Plan{3, 2, 0}, Plan{2, 2, 0}},
		{"it does not fit any more", capacities{{2, 3, 0}: 20, {4, 1, 0}: 20}, Plan{4, 1, 0}, Plan{2, 3, 0}},
		{"none holds, and it misses as many", capacities{{2, 4, 0}: 8, {3, 3, 0}: 8}, Plan{3, 3, 0}, Plan{3, 3, 0}},
		{"none holds, and another misses clearly fewer", capacities{{2, 4, 0}: 8, {3, 3, 0}: 7}, Plan{3, 3, 0}, Plan{2, 4, 0}},
	} {
		s := &search{cfg: cfg, evaluator: tc.by, forecast: Forecast{Rate: 10}, advised: tc.advised, seen: map[Plan]Candidate{}}
		for p := 1; p <= 5; p++ { // whatever way the search takes
			for d := 1; p+d <= 6; d++ {
				s.try(Plan{p, d, 0})
			}
		}
		best, _, err := s.cheapest(Plan{2, 2, 0})
		if err != nil || best.Plan != tc.want {
			t.Errorf("%s: %+v, %v", tc.name, best, err)
		}
	}
	p := newPlanner(t, cfg)
	o := newScene(t, cfg, Plan{Prefill: 1, Decode: 1}).observation(0)
	o.End = at(5)
	p.observe(at(5), o)
	p.advised = Plan{2, 2, 0}
	o.Decode.Workers = append(o.Decode.Workers, Worker{State: WorkerReady})
	o.Start, o.End = at(5), at(10)
	if p.observe(at(10), o); p.advised != (Plan{}) {
		t.Errorf("of other workers: %v", p.advised)
	}
}
