package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
)

// Topology is what a search chooses.
type Topology struct {
	Prefill int `json:"prefill"`
	Decode  int `json:"decode"`
	// MaxLocal is disagg.max_local_prefill_tokens where disagg.conditional is threshold; 0 leaves both as they are.
	MaxLocal int `json:"max_local_prefill_tokens,omitempty"`
	// PrefillTP and DecodeTP are engine.tensor_parallel of the roles; 0 leaves it as it is.
	PrefillTP int `json:"prefill_tensor_parallel,omitempty"`
	DecodeTP  int `json:"decode_tensor_parallel,omitempty"`
}

func (t Topology) String() string {
	role := func(n int, letter string, tp int) string {
		if tp > 0 {
			return fmt.Sprintf("%d%s(TP%d)", n, letter, tp)
		}
		return fmt.Sprintf("%d%s", n, letter)
	}
	if t.Prefill == 0 {
		return role(t.Decode, " aggregated", t.DecodeTP)
	}
	out := role(t.Prefill, "P", t.PrefillTP) + role(t.Decode, "D", t.DecodeTP)
	if t.MaxLocal > 0 {
		out += fmt.Sprintf(", prompts up to %d local", t.MaxLocal)
	}
	return out
}

// thresholds are the lengths up to which prompts are computed by decode workers that a search tries.
var thresholds = []int{64, 256, 1024, 4096}

// MaxBudget bounds the devices of a search: some eight topologies of each number of workers are simulated, each with an
// engine per worker.
const MaxBudget = 256

// MaxProfiles bounds the profiles of a search: with each pair of them, prefill and decode workers are tried.
const MaxProfiles = 4

// Search finds topologies for a load.
type Search struct {
	Config simulate.Config // with targets; without Load, Prefill and Decode
	// Profiles, if there are several, are those of workers of so many devices as they say, which the search
	// chooses for each role, as engine.tensor_parallel. Config has the profiles else.
	Profiles map[int]Profiles
	Load     func() simulate.Source
	Budget   int     // devices
	Allowed  float64 // share of requests that may miss a target
	// Tried, if set, is told each topology that was simulated.
	Tried func(simulated int, f Found)

	seen map[Topology]*Found
	most int // devices of topologies that are still of interest
}

// Profiles are those of the same number of devices for a role each, with the limits that it declares.
type Profiles struct{ Prefill, Decode *profile.Profile }

// Found is a topology with how it did.
type Found struct {
	Topology Topology         `json:"topology"`
	Devices  int              `json:"devices"`
	Missed   float64          `json:"missed"` // share of requests, refused ones too
	Result   *simulate.Result `json:"-"`
}

// Devices returns how many devices a topology takes.
func (s *Search) Devices(t Topology) int {
	p := s.profiles(t)
	return t.Prefill*p.Prefill.Devices + t.Decode*p.Decode.Devices
}

// profiles returns those of a topology.
func (s *Search) profiles(t Topology) Profiles {
	p := Profiles{Prefill: s.Config.PrefillProfile, Decode: s.Config.Profile}
	if p.Prefill == nil {
		p.Prefill = p.Decode
	}
	if of, ok := s.Profiles[t.PrefillTP]; ok {
		p.Prefill = of.Prefill
	}
	if of, ok := s.Profiles[t.DecodeTP]; ok {
		p.Decode = of.Decode
	}
	return p
}

// Front returns the topologies of which none with as few devices misses less, by devices. With several profiles it looks for
// each pair of them, and no further than to the devices with which another pair misses nothing.
func (s *Search) Front(ctx context.Context) ([]Found, error) {
	switch {
	case s.Budget < 1 || s.Budget > MaxBudget:
		return nil, fmt.Errorf("a budget of %d devices is not between 1 and %d", s.Budget, MaxBudget)
	case len(s.Profiles) > MaxProfiles:
		return nil, fmt.Errorf("%d profiles are more than %d", len(s.Profiles), MaxProfiles)
	}
	s.seen, s.most = map[Topology]*Found{}, s.Budget
	ranks := slices.Sorted(maps.Keys(s.Profiles))
	if len(ranks) == 0 {
		ranks = []int{0}
	}
	for _, prefill := range ranks {
		for _, decode := range ranks {
			if err := s.climbFrom(ctx, Topology{PrefillTP: prefill, DecodeTP: decode}); err != nil {
				return nil, err
			}
		}
	}
	return s.front(), nil
}

// climbFrom tries topologies of these degrees of parallelism. With one worker
// more it goes on from the best split of the workers before, moves workers between the roles while that misses
// less, and tries workers without roles and, with prefill workers, lengths up to which prompts stay local. It ends where
// nothing is missed, or the budget is spent. So it simulates some eight topologies for each number of workers and not all,
// and a better split behind a worse one stays unseen.
func (s *Search) climbFrom(ctx context.Context, kind Topology) error {
	of := func(prefill, decode int) Topology {
		kind.Prefill, kind.Decode = prefill, decode
		return kind
	}
	split := of(0, 0) // the best one with roles of the number before
	for workers := 1; ; workers++ {
		tried := 0
		aggregated, err := s.try(ctx, Topology{Decode: workers, DecodeTP: kind.DecodeTP}, &tried)
		if err != nil {
			return err
		}
		best := aggregated
		if workers > 1 {
			var at *Found
			for _, t := range []Topology{of(split.Prefill+1, max(split.Decode, 1)), of(max(split.Prefill, 1), split.Decode+1)} {
				if t.Prefill+t.Decode != workers {
					continue
				}
				f, err := s.try(ctx, t, &tried)
				if err != nil {
					return err
				}
				at = better(at, f)
			}
			if at, err = s.climb(ctx, at, &tried); err != nil {
				return err
			}
			if at != nil {
				split = at.Topology
				if at, err = s.local(ctx, at, &tried); err != nil {
					return err
				}
			}
			best = better(best, at)
		}
		if tried == 0 || best != nil && best.Missed == 0 {
			return nil
		}
	}
}

// climb moves workers between the roles while that misses less.
func (s *Search) climb(ctx context.Context, at *Found, tried *int) (*Found, error) {
	for at != nil {
		next := at
		for _, move := range []int{1, -1} {
			t := at.Topology
			t.Prefill, t.Decode = t.Prefill+move, t.Decode-move
			if t.Prefill < 1 || t.Decode < 1 {
				continue
			}
			f, err := s.try(ctx, t, tried)
			if err != nil {
				return nil, err
			}
			next = better(next, f)
		}
		if next == at {
			return at, nil
		}
		at = next
	}
	return nil, nil
}

// local tries lengths up to which prompts stay local, on a split that misses something.
func (s *Search) local(ctx context.Context, at *Found, tried *int) (*Found, error) {
	best := at
	for _, n := range thresholds {
		if at.Missed == 0 {
			break
		}
		t := at.Topology
		t.MaxLocal = n
		f, err := s.try(ctx, t, tried)
		if err != nil {
			return nil, err
		}
		best = better(best, f)
	}
	return best, nil
}

// better returns the one that misses less; a if they miss the same, or b is nil.
func better(a, b *Found) *Found {
	if a == nil || b != nil && b.Missed < a.Missed {
		return b
	}
	return a
}

// try simulates a topology once; nil if it is beyond the budget.
func (s *Search) try(ctx context.Context, t Topology, tried *int) (*Found, error) {
	devices := s.Devices(t)
	if devices > s.most {
		return nil, nil
	}
	*tried++
	if f := s.seen[t]; f != nil {
		return f, nil
	}
	c, p := s.Config, s.profiles(t)
	c.Profile, c.PrefillProfile = p.Decode, p.Prefill
	c.Prefill, c.Decode, c.Load = t.Prefill, t.Decode, s.Load()
	if t.MaxLocal > 0 {
		rule, err := cluster.ParseConditional(cluster.ConditionalThreshold)
		if err != nil {
			return nil, err
		}
		c.Disagg.Conditional, c.Disagg.MaxLocalTokens = rule, t.MaxLocal
	}
	r, err := simulate.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	f := &Found{Topology: t, Devices: devices, Missed: Missed(r), Result: r}
	s.seen[t] = f
	if f.Missed == 0 {
		s.most = min(s.most, devices)
	}
	if s.Tried != nil {
		s.Tried(len(s.seen), *f)
	}
	return f, nil
}

// front returns the topologies that no other one beats.
func (s *Search) front() (out []Found) {
	all := make([]*Found, 0, len(s.seen))
	for _, f := range s.seen {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *Found) int { // of equal ones that with fewer prefill workers, and without a threshold
		return cmp.Or(cmp.Compare(a.Devices, b.Devices), cmp.Compare(a.Missed, b.Missed), cmp.Compare(a.Topology.Prefill, b.Topology.Prefill), cmp.Compare(a.Topology.MaxLocal, b.Topology.MaxLocal))
	})
	for _, f := range all {
		if len(out) == 0 || f.Missed < out[len(out)-1].Missed {
			out = append(out, *f)
		}
	}
	return out
}

// Choose returns the topology of a front with the fewest devices that holds the target, or the one that misses least, and false.
func (s *Search) Choose(front []Found) (Found, bool) {
	for _, f := range front {
		if f.Missed <= s.Allowed {
			return f, true
		}
	}
	return front[len(front)-1], false
}
