package planner

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// TestPoolsModel lets the planners of up to four pools share a budget, with random loads, attached servers, roles that
// cannot start a worker and pools that nobody plans, while all happens that happens to one planner.
func TestPoolsModel(t *testing.T) {
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = seeds[:0]
		for s := uint64(1); s <= 25; s++ {
			seeds = append(seeds, s)
		}
	}
	grown := 0
	for _, seed := range seeds {
		if !t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			first := runPools(t, seed, 150)
			for _, d := range first {
				if d.Changes() && d.Proposal.Prefill+d.Proposal.Decode > d.Current.Prefill+d.Current.Decode {
					grown++
				}
			}
			if seed == 1 && !reflect.DeepEqual(first, runPools(t, seed, 150)) {
				t.Error("the same observations give other decisions")
			}
		}) {
			t.Fatalf("go test ./internal/planner -run TestPoolsModel -planner.seed %d", seed)
		}
	}
	if *modelSeed == 0 && grown < 50 {
		t.Errorf("%d pools grew: nothing is tried", grown)
	}
}

func runPools(t *testing.T, seed uint64, ticks int) (out []Decision) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 11))
	b := Budget{Devices: 4 + r.IntN(30)}
	if r.IntN(3) == 0 {
		b.Prefill, b.Decode = 1+r.IntN(12), 1+r.IntN(12)
	}
	var models []*model
	var seats []Seat
	for i := range 2 + r.IntN(3) {
		m := &model{r: r, now: at(0), rate: 8, length: Length{ISL: 100 + r.IntN(4000), OSL: 10 + r.IntN(300)}, slow: 1, attached: Plan{Prefill: r.IntN(2), Decode: r.IntN(3)}}
		m.cfg = randomConfig(r)
		m.cfg.ActionTimeout = 2 * time.Minute
		m.cfg.Prefill.Fixed, m.cfg.Decode.Fixed = r.IntN(5) == 0, r.IntN(5) == 0
		if r.IntN(8) == 0 {
			m.cfg.Mode = ModeOff
		}
		m.plan = m.attached
		models, seats = append(models, m), append(seats, Seat{Pool: strings.Repeat("p", i), Planner: newPlanner(t, m.cfg)})
	}
	now := at(0)
	for range ticks {
		now = now.Add(5 * time.Second)
		if r.IntN(40) == 0 {
			b.Devices = 1 + r.IntN(30)
		}
		for i, m := range models {
			m.now = now
			m.cfg.Devices, m.cfg.Prefill.Devices, m.cfg.Decode.Devices = b.Devices, b.Prefill, b.Decode
			if r.IntN(3) == 0 {
				m.happenOnce()
			}
			seats[i].Observation = m.observation()
		}
		all := Share(now, b, seats)
		checkShares(t, b, seats, all)
		for i, d := range all {
			if d.Changes() {
				models[i].order(d)
			}
		}
		out = append(out, all...)
	}
	return out
}

// happenOnce is what happens to a pool, but for its budget.
func (m *model) happenOnce() {
	pending := m.pending[:0]
	for _, a := range m.pending {
		if a.ends.IsZero() || a.ends.After(m.now) {
			pending = append(pending, a)
		}
	}
	m.pending = pending
	switch m.r.IntN(20) {
	case 0, 1:
		m.rate = 80 * m.r.Float64() * m.r.Float64()
	case 2:
		m.rate = 0
	case 3:
		m.queued = m.r.IntN(100)
	case 4:
		m.plan = m.plan.With(Roles[m.r.IntN(2)], m.r.IntN(4))
	}
}

// checkShares is what holds of all decisions on one budget.
func checkShares(t *testing.T, b Budget, seats []Seat, all []Decision) {
	t.Helper()
	var has, asked, floors holding
	for i, s := range seats {
		cfg := s.Planner.cfg
		h, a := cfg.holding(all[i].Current), cfg.holding(all[i].Proposal)
		least := cfg.holding(cfg.minimum(Plan{}))
		if cfg.Mode == ModeOff {
			least = h
		}
		for part := range has {
			has[part] += h[part]
			asked[part] += a[part]
			floors[part] += max(least[part], 0)
		}
	}
	for part, budget := range b.holding() {
		if b.bounds(part) && asked[part] > max(budget, has[part]) {
			t.Errorf("%s: the pools have %d and ask for %d of %d devices (part %d)", all[0].Time, has[part], asked[part], budget, part)
		}
	}
	for i, s := range seats {
		d, o, cfg := all[i], s.Observation, s.Planner.cfg
		wrong := func(format string, args ...any) {
			t.Helper()
			t.Errorf("%s, pool %q: %v -> %v (%s, %s): "+format, append([]any{d.Time, s.Pool, d.Current, d.Proposal, d.Cause, d.Refusal}, args...)...)
		}
		if has[0] > b.Devices && d.Changes() && cfg.DevicesOf(d.Proposal) > cfg.DevicesOf(d.Current) {
			wrong("it grows, while the pools have %d of %d devices", has[0], b.Devices)
		}
		if d.Changes() && (cfg.Mode == ModeOff || cfg.Prefill.Fixed && cfg.Decode.Fixed) {
			wrong("nothing may change")
		}
		for _, role := range Roles {
			n, attached := d.Proposal.Workers(role), min(o.Role(role).attached(), d.Current.Workers(role))
			if d.Changes() && n < attached {
				wrong("%d %s workers are attached", attached, role)
			}
			if d.Changes() && cfg.Role(role).Fixed && n > d.Current.Workers(role) {
				wrong("a %s worker cannot start", role)
			}
		}
		if d.Changes() && floors[0] <= b.Devices && b.Prefill == 0 {
			for _, role := range Roles {
				if n := d.Proposal.Workers(role); n < min(cfg.least(role), d.Current.Workers(role)) {
					wrong("the minimum is %d %s workers", cfg.least(role), role)
				}
			}
		}
		if !d.Changes() && d.Refusal == "" || d.Changes() == (d.Cause == "") {
			wrong("it says nothing")
		}
		if len(d.Lines()) == 0 {
			wrong("no words")
		}
	}
}

// sits is a seat whose pool was observed.
func sits(t *testing.T, pool string, cfg Config, o Observation) Seat {
	t.Helper()
	return Seat{Pool: pool, Planner: newPlanner(t, cfg), Observation: o}
}

func has(prefill, decode int, attached ...cluster.Role) Observation {
	o := Observation{Start: at(0), End: at(5)}
	for i := range prefill {
		o.Prefill.Workers = append(o.Prefill.Workers, Worker{Name: "p" + strconv.Itoa(i), State: WorkerReady})
	}
	for i := range decode {
		o.Decode.Workers = append(o.Decode.Workers, Worker{Name: "d" + strconv.Itoa(i), State: WorkerReady})
	}
	for _, role := range attached {
		w := Worker{Name: "a", State: WorkerReady, Attached: true}
		if role == cluster.RolePrefill {
			o.Prefill.Workers = append(o.Prefill.Workers, w)
		} else {
			o.Decode.Workers = append(o.Decode.Workers, w)
		}
	}
	return o
}

// Where the pools have more than the budget, the one that is further above its minimum gives back; a pool below its minimum
// gets its workers when they are free, and is told who keeps them.
func TestMinimaOfPools(t *testing.T) {
	cfg := config()
	cfg.Decode.Min = 2
	seats := []Seat{sits(t, "", cfg, has(1, 7)), sits(t, "small", cfg, has(0, 0))}
	all := Share(at(5), Budget{Devices: 8}, seats)
	if all[0].Cause != CauseBudget || all[0].Proposal != (Plan{Prefill: 1, Decode: 5}) {
		t.Errorf("the main pool: %+v", all[0])
	}
	if all[1].Changes() || all[1].Refusal != RefusedBudget || !strings.Contains(all[1].Detail, "Of the 8 devices for all pools, the main pool keeps 8") {
		t.Errorf("small: %+v", all[1])
	}
	seats[0].Observation, seats[1].Observation = has(1, 5), has(0, 0)
	for i := range seats {
		seats[i].Observation.Start, seats[i].Observation.End = at(5), at(10)
	}
	all = Share(at(10), Budget{Devices: 8}, seats)
	if all[1].Cause != CauseMinimum || all[1].Proposal != (Plan{Decode: 2}) {
		t.Errorf("then: %+v\n%+v", all[0], all[1])
	}
	// More than all minima: those of earlier seats first.
	all = Share(at(10), Budget{Devices: 3}, []Seat{sits(t, "", cfg, has(0, 0)), sits(t, "a", cfg, has(0, 0))})
	if all[0].Proposal.Decode != 2 || all[1].Proposal.Decode != 1 {
		t.Errorf("3 devices: %v and %v", all[0].Proposal, all[1].Proposal)
	}
	// A pool that nobody plans keeps what it has.
	off := cfg
	off.Mode = ModeOff
	all = Share(at(10), Budget{Devices: 6}, []Seat{sits(t, "", cfg, has(0, 4)), sits(t, "b", off, has(0, 4))})
	if all[0].Proposal.Decode != 2 || all[1].Changes() {
		t.Errorf("beside one that is off: %+v", all)
	}
}

// The pool that misses its target most comes first, wherever it sits; goals without latencies miss nothing.
func TestNeediestFirst(t *testing.T) {
	late := func(o Observation, missed, of int) Observation {
		o.Arrived = of
		for i := range of {
			r := Request{Length: Length{ISL: 1000, OSL: 50}, TTFT: time.Millisecond, ITL: time.Millisecond}
			if i < missed {
				r.TTFT = time.Minute
			}
			o.Requests = append(o.Requests, r)
		}
		return o
	}
	cfg := config()
	cfg.Decode.Min = 1
	cost := cfg
	cost.Target.Goal = GoalCost
	wants := func(cfg Config) Config { cfg.Decode.Min = 3; return cfg }
	for _, tc := range []struct {
		name  string
		seats []Seat
		want  []int // decode workers of 4 devices
	}{
		{"equal, the first", []Seat{sits(t, "", cfg, late(has(0, 2), 5, 10)), sits(t, "b", cfg, late(has(0, 3), 5, 10))}, []int{2, 2}},
		{"the one that misses less gives", []Seat{sits(t, "", cfg, late(has(0, 2), 1, 10)), sits(t, "b", cfg, late(has(0, 3), 5, 10))}, []int{1, 3}},
		{"a goal without latencies", []Seat{sits(t, "", cost, late(has(0, 2), 10, 10)), sits(t, "b", cfg, late(has(0, 3), 1, 10))}, []int{1, 3}},
		{"a minimum is not given", []Seat{sits(t, "", wants(cfg), late(has(0, 3), 0, 10)), sits(t, "b", cfg, late(has(0, 2), 9, 10))}, []int{3, 1}},
	} {
		all := Share(at(5), Budget{Devices: 4}, tc.seats)
		for i, d := range all {
			if d.Proposal.Decode != tc.want[i] {
				t.Errorf("%s: pool %d: %v -> %v (%s %s)", tc.name, i, d.Current, d.Proposal, d.Cause, d.Refusal)
			}
		}
	}
	none := cfg
	none.Decode.Min = 0
	for want, missed := range [][2]int{{9, 1}, {1, 9}} {
		all := Share(at(5), Budget{Devices: 1}, []Seat{sits(t, "", none, late(has(0, 0), missed[0], 10)), sits(t, "b", none, late(has(0, 0), missed[1], 10))})
		if got, other := all[want], all[1-want]; got.Cause != CauseWake || got.Proposal.Decode != 1 || other.Refusal != RefusedBudget || !strings.Contains(other.Detail, "keeps 1") {
			t.Errorf("%v missed: %+v and %+v", missed, got, other)
		}
	}
}

// Attached servers are capacity that takes no device, and stay; a pool of nothing else is observed alone.
func TestAttached(t *testing.T) {
	cfg := config()
	cfg.Devices, cfg.Decode.Min = 2, 1
	p := newPlanner(t, cfg)
	d := p.Tick(at(5), has(0, 4, cluster.RoleDecode, cluster.RoleDecode))
	if d.Cause != CauseBudget || d.Current.Decode != 6 || d.Proposal.Decode != 4 {
		t.Errorf("more than the budget: %+v", d)
	}
	d = newPlanner(t, cfg).Tick(at(5), has(0, 1, cluster.RoleDecode, cluster.RoleDecode))
	if d.Changes() && d.Proposal.Decode < 2 {
		t.Errorf("idle: %+v", d)
	}
	cfg.Prefill.Fixed, cfg.Decode.Fixed = true, true
	o := has(0, 0, cluster.RoleDecode)
	o.Arrived, o.Decode.Queued = 500, 90
	if d := newPlanner(t, cfg).Tick(at(5), o); d.Changes() || d.Refusal != RefusedAttached || !strings.Contains(d.Lines()[0], "only attached servers: nothing to start") {
		t.Errorf("nothing but attached servers: %+v", d)
	}
	if d := newPlanner(t, cfg).Tick(at(5), has(0, 0)); d.Changes() || d.Refusal != RefusedAttached {
		t.Errorf("that are lost: %+v", d)
	}
	// Own workers stay beside them.
	own := config()
	own.Decode.Min, own.Decode.Own = 0, 1
	if d := newPlanner(t, own).Tick(at(5), has(0, 3, cluster.RoleDecode)); d.Cause != CauseNoTraffic || d.Proposal.Decode != 3 {
		t.Errorf("idle, with own ones: %+v", d)
	}
	if d := newPlanner(t, own).Tick(at(5), has(0, 1, cluster.RoleDecode)); d.Changes() {
		t.Errorf("the last own one goes: %+v", d)
	}
	// A role that cannot grow says so.
	cfg.Prefill.Fixed, cfg.Prefill.Min = false, 1
	o = has(0, 0, cluster.RoleDecode)
	if d := newPlanner(t, cfg).Tick(at(5), o); d.Proposal != (Plan{Prefill: 1, Decode: 1}) {
		t.Errorf("prefill workers can start: %+v", d)
	}
	cfg.Prefill.Fixed, cfg.Decode.Fixed, cfg.Devices = true, false, 1
	cfg.Prefill.Min, cfg.Decode.Min = 0, 1
	if d := newPlanner(t, cfg).Tick(at(5), has(0, 0, cluster.RolePrefill)); d.Proposal != (Plan{Prefill: 1, Decode: 1}) || d.Cause != CauseMinimum {
		t.Errorf("decode workers can start: %+v", d)
	}
}
