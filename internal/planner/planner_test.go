package planner

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// machine is a worker of round numbers: 50,000 prompt tokens a second; steps of 5 ms, and 5 ms more with
// 150,000 tokens of KV, of 400,000.
type machine struct{ slow float64 }

func (m machine) TTFT(isl float64) float64          { return m.factor() * (0.010 + isl/50_000) }
func (m machine) PrefillThroughput(float64) float64 { return 50_000 / m.factor() }
func (m machine) ITL(kv, _ float64) float64         { return m.factor() * (0.005 + 0.005*kv/150_000) }
func (machine) KVCapacity() float64                 { return 400_000 }
func (m machine) factor() float64                   { return max(m.slow, 1) }
func lengths(n, isl, osl int) []Length              { return slices.Repeat([]Length{{ISL: isl, OSL: osl}}, n) }
func target() Target {
	return Target{Goal: GoalSLA, TTFT: 500 * time.Millisecond, ITL: 10 * time.Millisecond, Percentile: 0.95}
}
func at(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func config() Config {
	cfg := Defaults()
	cfg.Mode, cfg.Target = ModeAct, target()
	return cfg
}

func newPlanner(t *testing.T, cfg Config) *Planner {
	t.Helper()
	p, err := New(cfg, machine{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scene is a cluster that does what is proposed after a while, under a load that is told.
type scene struct {
	t       *testing.T
	p       *Planner
	now     float64
	plan    Plan
	pending []Pending
	start   float64 // seconds that a start takes
	every   float64 // seconds between two observations
	last    Decision
	edit    func(*Observation) // of the next observations
}

func newScene(t *testing.T, cfg Config, plan Plan) *scene {
	return &scene{t: t, p: newPlanner(t, cfg), plan: plan, start: 30, every: 5}
}

// observation is what the scene shows of the last seconds with so many arrivals.
func (s *scene) observation(arrived int) Observation {
	o := Observation{Start: at(s.now - s.every), End: at(s.now), Arrived: arrived, MaxLocalPrefill: s.plan.MaxLocalPrefill}
	for range min(arrived, 40) {
		o.Requests = append(o.Requests, Request{Length: Length{ISL: 3000, OSL: 300}, TTFT: 100 * time.Millisecond, ITL: 6 * time.Millisecond})
	}
	starting := map[cluster.Role]int{}
	s.pending = slices.DeleteFunc(s.pending, func(a Pending) bool { return at(s.now).Sub(a.Since).Seconds() >= s.start })
	for _, a := range s.pending {
		if a.Kind == ActionStart {
			starting[a.Role]++
		}
	}
	o.Pending = slices.Clone(s.pending)
	for _, role := range Roles {
		var ws []Worker
		for i := range s.plan.Workers(role) {
			w := Worker{Name: string(role) + strconv.Itoa(i), State: WorkerReady}
			if i >= s.plan.Workers(role)-starting[role] {
				w.State = WorkerStarting
			}
			ws = append(ws, w)
		}
		if role == cluster.RolePrefill {
			o.Prefill.Workers = ws
		} else {
			o.Decode.Workers = ws
		}
	}
	if s.edit != nil {
		s.edit(&o)
	}
	return o
}

// tick lets the time to the next observation pass and carries out what is proposed.
func (s *scene) tick(arrived int) Decision {
	s.now += s.every
	d := s.p.Tick(at(s.now), s.observation(arrived))
	if s.last = d; !d.Changes() {
		return d
	}
	if d.Cause == CauseTakeBack {
		s.pending = nil
	}
	for _, a := range d.Actions {
		if a.Kind == ActionStart {
			for range a.Workers {
				s.pending = append(s.pending, Pending{Kind: ActionStart, Role: a.Role, Since: at(s.now)})
			}
		}
	}
	s.plan = d.Proposal
	return d
}

// run ticks so many times and returns the last decision and how many changed something.
func (s *scene) run(ticks, arrived int) (d Decision, changes int) {
	for range ticks {
		if d = s.tick(arrived); d.Changes() {
			changes++
		}
	}
	return d, changes
}

func TestUpOnAStep(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	if d, n := s.run(40, 40); n != 0 || d.Refusal != RefusedNoChange {
		t.Fatalf("8 requests/s: %d changes, %s", n, d.Refusal)
	}
	var d Decision
	for range 3 {
		if d = s.tick(150); d.Changes() {
			break
		}
	}
	if d.Cause != CauseForecast || d.Proposal.Prefill < 2 || d.Proposal.Decode < 2 {
		t.Errorf("30 requests/s: %v for %q", d.Proposal, d.Cause)
	}
	if d := s.tick(150); d.Refusal != RefusedUnfinished || d.Changes() {
		t.Errorf("while workers start: %+v", d)
	}
}

// What came up for a load that ends goes again, one step at a time and not before the cool-down.
func TestDownAfterTheLoad(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.run(20, 40)
	s.run(40, 150)
	top := s.plan
	if top.Prefill < 2 || top.Decode < 2 {
		t.Fatalf("30 requests/s: %v", top)
	}
	var last float64
	for range 120 {
		before := s.plan
		d := s.tick(40)
		if !d.Changes() {
			continue
		}
		if d.Cause != CauseDown || before.Prefill-s.plan.Prefill > 1 || before.Decode-s.plan.Decode > 1 {
			t.Errorf("%v -> %v for %s", before, s.plan, d.Cause)
		}
		last = s.now
	}
	if s.plan != (Plan{Prefill: 1, Decode: 1}) || last == 0 {
		t.Errorf("8 requests/s again: %v", s.plan)
	}
}

// At any constant load the planner comes to rest: no two plans take turns.
func TestNoOscillation(t *testing.T) {
	for arrived := 10; arrived <= 240; arrived += 37 {
		for _, from := range []Plan{{Prefill: 1, Decode: 1}, {Decode: 2}, {Prefill: 4, Decode: 4}} {
			s := newScene(t, config(), from)
			s.run(120, arrived)
			plan := s.plan
			if d, n := s.run(120, arrived); n > 0 {
				t.Errorf("%d arrivals in 5 s from %v: %d changes at rest, %v -> %v (%s)", arrived, from, n, plan, s.plan, d.Cause)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	steady := func(cfg Config, plan Plan, arrived int, edit func(*Observation)) Decision {
		s := newScene(t, cfg, plan)
		s.run(30, arrived)
		s.edit = edit
		return s.tick(arrived)
	}
	with := func(f func(*Config)) Config { cfg := config(); f(&cfg); return cfg }
	one := Plan{Prefill: 1, Decode: 1}
	for _, tc := range []struct {
		name string
		d    Decision
		want Refusal
	}{
		{"off", steady(with(func(c *Config) { c.Mode = ModeOff }), one, 40, nil), RefusedOff},
		{"no change", steady(config(), one, 40, nil), RefusedNoChange},
		{"another leader", steady(config(), one, 40, func(o *Observation) { o.NotLeader = true }), RefusedNotLeader},
		{"a node is lost", steady(config(), one, 40, func(o *Observation) { o.NodesLost = 1 }), RefusedNodeLost},
		{"an old window", steady(config(), one, 40, func(o *Observation) { o.Start, o.End = o.Start.Add(-time.Minute), o.End.Add(-time.Minute) }), RefusedStaleData},
		{"a window from the future", steady(config(), one, 40, func(o *Observation) { o.End = o.End.Add(time.Second) }), RefusedStaleData},
		{"an empty window", steady(config(), one, 40, func(o *Observation) { o.Start = o.End }), RefusedStaleData},
		{"the same window again", steady(config(), one, 40, func(o *Observation) { o.Start = o.Start.Add(-time.Second) }), RefusedStaleData},
		{"a negative count", steady(config(), one, 40, func(o *Observation) { o.Arrived = -1 }), RefusedStaleData},
		{"something under way", steady(config(), one, 40, func(o *Observation) {
			o.Pending = []Pending{{Kind: ActionFlip, Role: cluster.RoleDecode, Since: o.End.Add(-time.Second)}}
		}), RefusedUnfinished},
		{"by hand", steady(config(), one, 400, func(o *Observation) { o.Hold = Hold{RefusedByHand, "user@host did"} }), RefusedByHand},
		{"few requests", steady(with(func(c *Config) { c.MinRequests = 100_000 }), one, 40, nil), RefusedInsufficientData},
		{"the budget", steady(with(func(c *Config) { c.Devices = 2 }), one, 400, nil), RefusedBudget},
		{"the minimum", steady(with(func(c *Config) { c.Prefill.Min = 1; c.Decode.Min = 2 }), Plan{Prefill: 1, Decode: 2}, 10, nil), RefusedMinimum},
		{"near the limit", steady(config(), Plan{Prefill: 2, Decode: 2}, 60, nil), RefusedConsolidation},
	} {
		if tc.d.Refusal != tc.want || tc.d.Changes() {
			t.Errorf("%s: %q (%s), %v -> %v", tc.name, tc.d.Refusal, tc.d.Detail, tc.d.Current, tc.d.Proposal)
		}
		if len(tc.d.Lines()) == 0 || sentences[tc.d.Refusal] == "" {
			t.Errorf("%s: no words for %q", tc.name, tc.d.Refusal)
		}
	}
}

// A start whose load has gone is taken back while it is under way.
func TestTakeBack(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.start = 400
	s.run(30, 40)
	s.run(3, 200)
	if len(s.pending) == 0 {
		t.Fatal("nothing starts")
	}
	for range 60 {
		if d := s.tick(40); d.Changes() {
			if d.Cause != CauseTakeBack || s.plan != (Plan{Prefill: 1, Decode: 1}) {
				t.Errorf("%v for %s", s.plan, d.Cause)
			}
			return
		}
	}
	t.Errorf("still %v: %s", s.plan, s.last.Refusal)
}

// An action that never ends does not hold the planner up for longer than the time-out.
func TestOverdueActions(t *testing.T) {
	cfg := config()
	cfg.ActionTimeout = time.Minute
	s := newScene(t, cfg, Plan{Prefill: 1, Decode: 1})
	s.edit = func(o *Observation) {
		o.Pending = []Pending{{Kind: ActionDrain, Role: cluster.RoleDecode, Since: at(0)}}
	}
	for range 60 {
		if d := s.tick(150); d.Changes() {
			if v, _ := d.Number(ReasonOverdue); v != 1 || s.now <= 60 {
				t.Errorf("at %v s: %+v", s.now, d.Reasons)
			}
			return
		}
	}
	t.Error("nothing is ever proposed")
}

// A role flips rather than that a worker starts, where its devices are not needed.
func TestFlipsBeforeStarts(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 3})
	s.edit = func(o *Observation) { // long prompts, short answers
		for i := range o.Requests {
			o.Requests[i].Length = Length{ISL: 12000, OSL: 20}
		}
	}
	for range 40 {
		if d := s.tick(20); d.Changes() {
			if want := []Action{{ActionFlip, cluster.RolePrefill, 1}}; !slices.Equal(d.Actions, want) {
				t.Errorf("%v -> %v: %+v\n%s", d.Current, d.Proposal, d.Actions, strings.Join(d.Lines(), "\n"))
			}
			return
		}
	}
	t.Error("nothing changed")
}

// The load loop adds a worker when all workers of a role miss although the profile says otherwise, and
// learns from the steps that the profile is wrong, so that the worker stays.
func TestLoadLoop(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.run(30, 40)
	s.edit = func(o *Observation) {
		for i := range o.Decode.Workers {
			w := &o.Decode.Workers[i]
			w.KVTokens = 130_000 / len(o.Decode.Workers) // more than the lengths account for
			w.Step = time.Duration(1.3 * machine{}.ITL(float64(w.KVTokens), 0) * float64(time.Second))
		}
	}
	grown := false
	for range 20 {
		d := s.tick(40)
		if d.Changes() {
			grown = grown || d.Cause == CauseLoad && d.Proposal.Decode == 2
		}
	}
	if !grown {
		t.Fatalf("never: %v, %s", s.plan, s.last.Refusal)
	}
	if d, n := s.run(100, 40); n > 0 || s.plan.Decode != 2 {
		t.Errorf("%d changes to %v (%s)", n, s.plan, d.Cause)
	}
}

func TestScaleToZeroAndBack(t *testing.T) {
	cfg := config()
	cfg.Decode.Min = 0
	s := newScene(t, cfg, Plan{Prefill: 1, Decode: 2})
	s.run(20, 40)
	s.run(200, 0)
	if s.plan != (Plan{}) {
		t.Fatalf("nothing arrives: %v, %s", s.plan, s.last.Refusal)
	}
	if d := s.tick(1); d.Cause != CauseWake || d.Proposal != (Plan{Decode: 1}) {
		t.Errorf("a request: %v for %s", d.Proposal, d.Cause)
	}
	cfg.Aggregate = false
	s = newScene(t, cfg, Plan{})
	if d := s.tick(1); d.Proposal != (Plan{Prefill: 1, Decode: 1}) {
		t.Errorf("a request without aggregated workers: %v", d.Proposal)
	}
}

// A budget that was lowered below what runs is kept at once.
func TestLoweredBudget(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 3, Decode: 4})
	s.run(10, 150)
	cfg := config()
	cfg.Devices = 4
	if err := s.p.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	if d := s.tick(150); d.Cause != CauseBudget || cfg.DevicesOf(d.Proposal) != 4 {
		t.Errorf("%v for %s", d.Proposal, d.Cause)
	}
	cfg.Devices = 0
	if err := s.p.Configure(cfg); err == nil {
		t.Error("a budget of nothing is accepted")
	}
}

// What the evaluator cannot do is said, and changes nothing.
func TestEvaluatorFails(t *testing.T) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.p.evaluator = failing{}
	s.run(10, 150)
	if s.last.Refusal != RefusedEvaluation || s.last.Changes() || s.last.Detail != ErrNoLengths.Error() {
		t.Errorf("%+v", s.last)
	}
}

type failing struct{}

func (failing) Evaluate(Plan, Forecast) (Outcome, error) { return Outcome{}, ErrNoLengths }

func TestDurations(t *testing.T) {
	var d Durations
	if got := d.Expect(ActionStart, time.Minute); got != time.Minute {
		t.Errorf("nothing seen: %s", got)
	}
	d.Add(ActionStart, 2*time.Minute)
	d.Add(ActionStart, -time.Minute)
	if got := d.Expect(ActionStart, time.Minute); got != 2*time.Minute || d.Count(ActionStart) != 1 {
		t.Errorf("one seen: %s", got)
	}
	for i := range 100 {
		d.Add(ActionStart, time.Duration(10+i%10)*time.Second)
	}
	d.Add(ActionStart, time.Hour)
	if got := d.Expect(ActionStart, time.Minute); got < 17*time.Second || got > 19*time.Second {
		t.Errorf("one slow of many: %s", got)
	}
	if d.Count(ActionStart) != remembered || d.Count(ActionFlip) != 0 {
		t.Errorf("%d remembered", d.Count(ActionStart))
	}
}

func TestMeasuredRates(t *testing.T) {
	h := history{stepped: stepped{step: 20 * time.Second, most: rememberedSteps}}
	for i := range 40 {
		arrived := 50
		if i >= 38 {
			arrived = 144
		}
		h.add(Observation{Start: at(float64(i) * 5), End: at(float64(i+1) * 5), Arrived: arrived}, target())
	}
	proven, possible := h.proven(at(200), 5*time.Second), h.possible(at(200), 5*time.Second)
	if proven.arrived != 288 || proven.seconds != 10 || math.Abs(proven.rate-(288-2*math.Sqrt(288))/10) > 1e-9 {
		t.Errorf("proven: %+v", proven)
	}
	if want := 2*50 + 288.0; possible.arrived != want || possible.seconds != 20 || math.Abs(possible.rate-(want+2*math.Sqrt(want))/20) > 1e-9 {
		t.Errorf("possible: %+v", possible)
	}
	series, end := h.series(at(200))
	if len(series) != 10 || series[0] != 10 || math.Abs(series[9]-(2*50+2*144)/20.0) > 1e-9 || !end.Equal(at(200)) {
		t.Errorf("series %v until %v", series, end)
	}
	h.add(Observation{Start: at(300), End: at(305), Arrived: 5}, target())
	if series, _ := h.series(at(305)); len(series) != 15 || !math.IsNaN(series[12]) {
		t.Errorf("a gap: %v", series)
	}
	if got := h.proven(at(305), 5*time.Second); got.arrived != 5 {
		t.Errorf("after a gap: %+v", got)
	}
	h.add(Observation{Start: at(1e6), End: at(1e6 + 5), Arrived: 5}, target())
	if len(h.steps) != 1 {
		t.Errorf("after a long gap: %d steps", len(h.steps))
	}
}

// least is an evaluator to which so many workers of each role hold any load, and fewer do not.
type least struct{ prefill, decode int }

func (l least) Evaluate(plan Plan, _ Forecast) (o Outcome, _ error) {
	if plan.Prefill < l.prefill {
		o.MissTTFT, o.PrefillLoad = 1, 0.99
	}
	if plan.Decode < l.decode {
		o.MissITL, o.DecodeLoad = 1, 0.99
	}
	o.Miss = max(o.MissTTFT, o.MissITL)
	return o, nil
}

// Fewer workers that are divided otherwise are not said to be more.
func TestDividedOtherwise(t *testing.T) {
	cfg := config()
	cfg.StepDown = 2
	s := newScene(t, cfg, Plan{Prefill: 3, Decode: 1})
	s.p.evaluator = least{1, 2}
	var d Decision
	for range 12 {
		if d = s.tick(70); d.Changes() {
			break
		}
	}
	if d.Cause != CauseDivide || d.Proposal.Prefill+d.Proposal.Decode >= 4 {
		t.Errorf("%v for %q: %q", d.Proposal, d.Cause, d.Lines())
	}
}
