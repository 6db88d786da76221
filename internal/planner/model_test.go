package planner

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

var modelSeed = flag.Uint64("planner.seed", 0, "the only seed of TestModel; 0: a few")

// TestModel lets a planner run on random loads while nodes are lost, windows are stale or missing, actions
// never finish, somebody changes workers by hand, and the budget is lowered below what runs.
func TestModel(t *testing.T) {
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = seeds[:0]
		for s := uint64(1); s <= 25; s++ {
			seeds = append(seeds, s)
		}
	}
	for _, seed := range seeds {
		if !t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			first := runModel(t, seed, 300)
			if seed == 1 && !reflect.DeepEqual(first, runModel(t, seed, 300)) {
				t.Error("the same observations give other decisions")
			}
		}) {
			t.Fatalf("go test ./internal/planner -run TestModel -planner.seed %d", seed)
		}
	}
}

// model is what is true of the cluster.
type model struct {
	r       *rand.Rand
	cfg     Config
	now     time.Time
	plan    Plan // that was ordered
	pending []modelAction
	rate    float64
	length  Length
	queued  int
	slow    float64
	// attached are the workers of plan that are servers of others, as far as it has them.
	attached Plan
}

type modelAction struct {
	Pending
	ends time.Time // zero: never
}

func (m *model) observation() Observation {
	o := Observation{Start: m.now.Add(-5 * time.Second), End: m.now, Arrived: int(m.rate*5*(0.7+0.6*m.r.Float64()) + m.r.Float64()), MaxLocalPrefill: m.plan.MaxLocalPrefill}
	for range min(o.Arrived, 10) {
		l := m.length
		l.ISL += m.r.IntN(l.ISL)
		l.OSL += m.r.IntN(l.OSL)
		if m.r.IntN(3) == 0 {
			l.ISL *= 8
		}
		o.Requests = append(o.Requests, Request{Length: l, TTFT: time.Duration(m.r.Int64N(int64(time.Second))), ITL: time.Duration(m.r.Int64N(int64(20 * time.Millisecond)))})
	}
	starting := map[cluster.Role]int{}
	for _, a := range m.pending {
		o.Pending = append(o.Pending, a.Pending)
		if a.Kind != ActionDrain {
			starting[a.Role]++
		}
	}
	for _, role := range Roles {
		var s RoleState
		for i := range m.plan.Workers(role) {
			w := Worker{Name: string(role) + strconv.Itoa(i), State: WorkerReady, KVTokens: m.r.IntN(200_000), Step: time.Duration(m.r.Int64N(int64(20 * time.Millisecond)))}
			if i >= m.plan.Workers(role)-starting[role] {
				w = Worker{Name: w.Name, State: WorkerStarting}
			}
			w.Attached = i < m.attached.Workers(role)
			s.Workers = append(s.Workers, w)
		}
		if role == cluster.RolePrefill {
			s.Queued, s.QueuedTokens = m.queued, m.queued*m.length.ISL
			o.Prefill = s
		} else {
			o.Decode = s
		}
	}
	return o
}

func runModel(t *testing.T, seed uint64, ticks int) []Decision {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	m := &model{r: r, now: at(0), rate: 8, length: Length{ISL: 100 + r.IntN(4000), OSL: 10 + r.IntN(300)}, slow: 1}
	m.cfg = randomConfig(r)
	m.cfg.ActionTimeout = 2 * time.Minute
	m.plan = m.cfg.reduce(m.cfg.minimum(Plan{Decode: 1}))
	p := newPlanner(t, m.cfg)
	var out []Decision
	var changes []change
	lost := time.Time{}
	for range ticks {
		m.now = m.now.Add(5 * time.Second)
		m.happen(t, p)
		o := m.observation()
		stale := false
		if m.r.IntN(25) == 0 {
			o.NodesLost, lost = 1, m.now
			m.plan = m.plan.With(cluster.RoleDecode, max(0, m.plan.Decode-1))
			o = withNodeLost(m)
		}
		now := m.now
		if m.r.IntN(20) == 0 {
			stale = true
			now = now.Add(m.cfg.StaleAfter + time.Second) // it arrives late
		}
		d := p.Tick(now, o)
		out = append(out, d)
		m.check(t, d, o, stale, now.Sub(lost) < m.cfg.NodeLossHold && !lost.IsZero() && !stale)
		if d.Changes() {
			changes = append(changes, change{m.now, d})
			checkReversals(t, m.cfg, changes)
			m.order(d)
		}
	}
	return out
}

func withNodeLost(m *model) Observation {
	o := m.observation()
	o.NodesLost = 1
	return o
}

// happen lets time and people do what they do.
func (m *model) happen(t *testing.T, p *Planner) {
	m.pending = slices.DeleteFunc(m.pending, func(a modelAction) bool { return !a.ends.IsZero() && !a.ends.After(m.now) })
	switch m.r.IntN(40) {
	case 0:
		m.rate = 80 * m.r.Float64() * m.r.Float64()
	case 1:
		m.rate = 0
	case 2:
		m.queued = m.r.IntN(200)
	case 3:
		m.queued = 0
	case 4: // a budget below or above what runs
		cfg := m.cfg
		cfg.Devices = max(cfg.Devices/2, cfg.Prefill.Min*cfg.Prefill.DevicesPerWorker+cfg.Decode.Min*cfg.Decode.DevicesPerWorker, 1)
		if m.r.IntN(2) == 0 {
			cfg.Devices = m.cfg.Devices * 2 % 40
		}
		if cfg.Validate() == nil {
			if err := p.Configure(cfg); err != nil {
				t.Fatal(err)
			}
			m.cfg = cfg
		}
	case 6:
		m.plan.MaxLocalPrefill = 64 << m.r.IntN(6)
	case 5: // by hand
		m.plan = m.plan.With(Roles[m.r.IntN(2)], m.r.IntN(4))
	}
}

// order carries a proposal out; some actions never end.
func (m *model) order(d Decision) {
	for _, a := range d.Actions {
		for range a.Workers {
			took := map[ActionKind]time.Duration{ActionStart: 30 * time.Second, ActionFlip: time.Second, ActionDrain: 5 * time.Second}[a.Kind]
			act := modelAction{Pending{Kind: a.Kind, Role: a.Role, Since: m.now}, m.now.Add(took)}
			if m.r.IntN(15) == 0 {
				act.ends = time.Time{}
			}
			m.pending = append(m.pending, act)
		}
	}
	if d.Cause == CauseTakeBack || d.Cause == CauseBudget {
		m.pending = nil
	}
	m.plan = d.Proposal
}

// check is what holds of every decision.
func (m *model) check(t *testing.T, d Decision, o Observation, stale, lost bool) {
	t.Helper()
	if !m.cfg.Fits(d.Proposal) && d.Changes() {
		t.Errorf("%s: %v needs %d of %d devices", d.Time, d.Proposal, m.cfg.DevicesOf(d.Proposal), m.cfg.Devices)
	}
	if stale && (d.Changes() || d.Refusal != RefusedStaleData) {
		t.Errorf("%s: %v -> %v on stale data (%s)", d.Time, d.Current, d.Proposal, d.Refusal)
	}
	if lost && d.Changes() {
		t.Errorf("%s: %v -> %v after a node was lost", d.Time, d.Current, d.Proposal)
	}
	for _, role := range Roles {
		low := m.cfg.Role(role).Min
		if have, get := d.Current.Workers(role), d.Proposal.Workers(role); get < low && get < have && d.Cause != CauseBudget {
			t.Errorf("%s: %s %d -> %d below the minimum %d", d.Time, role, have, get, low)
		}
		if get := d.Proposal.Workers(role); get < 0 {
			t.Errorf("%s: %d %s workers", d.Time, get, role)
		}
	}
	if d.Proposal.MaxLocalPrefill != d.Current.MaxLocalPrefill && (!m.cfg.Thresholds || d.Proposal.MaxLocalPrefill < 0) {
		t.Errorf("%s: threshold %d -> %d", d.Time, d.Current.MaxLocalPrefill, d.Proposal.MaxLocalPrefill)
	}
	under := 0
	for _, a := range o.Pending {
		if d.Time.Sub(a.Since) <= m.cfg.ActionTimeout {
			under++
		}
	}
	if under > 0 && d.Changes() && d.Cause != CauseTakeBack && d.Cause != CauseBudget {
		t.Errorf("%s: %v -> %v (%s) with %d actions under way", d.Time, d.Current, d.Proposal, d.Cause, under)
	}
	if d.Changes() == (d.Cause == "") || !d.Changes() && d.Refusal == "" {
		t.Errorf("%s: %v -> %v, cause %q, refusal %q", d.Time, d.Current, d.Proposal, d.Cause, d.Refusal)
	}
	if !d.NextCheck.After(d.Time) {
		t.Errorf("%s: next check at %s", d.Time, d.NextCheck)
	}
	if len(d.Lines()) == 0 {
		t.Errorf("%s: no words", d.Time)
	}
}

type change struct {
	at time.Time
	d  Decision
}

// checkReversals wants that no role loses a worker within the cool-down after a proposal that it grows, and none within that
// after another threshold, which stays as long: of the changes within one cool-down, at most one turns back. Budgets and what people do are no choice of the planner.
func checkReversals(t *testing.T, cfg Config, changes []change) {
	t.Helper()
	last := changes[len(changes)-1]
	if last.d.Cause == CauseBudget {
		return
	}
	rethresholds := func(c change) bool { return c.d.Proposal.MaxLocalPrefill != c.d.Current.MaxLocalPrefill }
	for _, c := range changes[:len(changes)-1] {
		fewer := last.d.Proposal.Prefill < last.d.Current.Prefill || last.d.Proposal.Decode < last.d.Current.Decode
		if last.at.Sub(c.at) < cfg.CoolDown && rethresholds(c) && (rethresholds(last) || fewer) {
			t.Errorf("%s: %+v -> %+v (%s), %s after another threshold", last.at, last.d.Current, last.d.Proposal, last.d.Cause, last.at.Sub(c.at))
		}
	}
	for _, role := range Roles {
		if last.d.Proposal.Workers(role) >= last.d.Current.Workers(role) {
			continue
		}
		for _, c := range changes[:len(changes)-1] {
			if last.at.Sub(c.at) < cfg.CoolDown && c.d.Proposal.Workers(role) > c.d.Current.Workers(role) {
				t.Errorf("%s: %s %d -> %d (%s), %s after it grew (%s)", last.at, role, last.d.Current.Workers(role), last.d.Proposal.Workers(role), last.d.Cause, last.at.Sub(c.at), c.d.Cause)
			}
		}
	}
}
