package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Errors of Pick.
var (
	// ErrNoWorkers is returned when there is no candidate at all.
	ErrNoWorkers = errors.New("no worker is ready")
	// ErrAllExcluded is returned when every candidate is excluded.
	ErrAllExcluded = errors.New("all workers are excluded")
)

// Candidate is a worker that could take a request.
type Candidate struct {
	ID     cluster.InstanceID
	Worker string
	// InFlight is the number of requests that this router has running on it.
	InFlight int
	// Excluded says why the worker must not be chosen; empty if it may be.
	Excluded string
}

// Request holds the properties of a request that policies use.
type Request struct {
	ID string
	// PromptTokens is the prompt length. BlockHashes are the local hashes of its full
	// blocks, for policies that compare prefixes.
	PromptTokens int
	BlockHashes  []uint64
}

// Decision is the choice of a worker, with its reasons.
type Decision struct {
	Chosen     Candidate
	Policy     string
	Candidates []cluster.RouteCandidate // the chosen first, then by cost, excluded last
	Weighed    []string                 // terms of the cost, see cluster.TermLoad
}

// Policy chooses one of the candidates. Pick returns ErrNoWorkers or
// ErrAllExcluded, together with a decision that lists the candidates.
type Policy interface {
	Name() string
	Pick(r Request, candidates []Candidate) (Decision, error)
}

// Names of the policies.
const (
	RoundRobin  = "round-robin"
	LeastLoaded = "least-loaded"
)

// Policies lists the names that NewPolicy accepts.
func Policies() []string { return []string{RoundRobin, LeastLoaded} }

// NewPolicy returns the policy of that name.
func NewPolicy(name string) (Policy, error) {
	switch name {
	case RoundRobin:
		return &roundRobin{}, nil
	case LeastLoaded:
		return leastLoaded{}, nil
	}
	return nil, fmt.Errorf("unknown router policy %q (known: %s, %s)", name, RoundRobin, LeastLoaded)
}

// roundRobin takes the candidates in turn, in the order of their ids.
type roundRobin struct{ next atomic.Uint64 }

func (*roundRobin) Name() string { return RoundRobin }

func (p *roundRobin) Pick(_ Request, candidates []Candidate) (Decision, error) {
	free, err := eligible(candidates)
	if err != nil {
		return explain(p.Name(), cluster.TermTurn, nil, candidates, nil), err
	}
	slices.SortFunc(free, func(a, b Candidate) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	// The cost of a worker is its distance from the pointer.
	turn := int((p.next.Add(1) - 1) % uint64(len(free)))
	place := make(map[cluster.InstanceID]int, len(free))
	for i, c := range free {
		place[c.ID] = i
	}
	cost := func(c Candidate) float64 { return float64((place[c.ID] - turn + len(free)) % len(free)) }
	return explain(p.Name(), cluster.TermTurn, &free[turn], candidates, cost), nil
}

// leastLoaded takes the candidate with the fewest requests in flight. Among equals it
// chooses at random, so that several frontends do not choose alike.
type leastLoaded struct{}

func (leastLoaded) Name() string { return LeastLoaded }

func (p leastLoaded) Pick(_ Request, candidates []Candidate) (Decision, error) {
	free, err := eligible(candidates)
	if err != nil {
		return explain(p.Name(), cluster.TermLoad, nil, candidates, nil), err
	}
	best, ties := 0, 1
	for i := 1; i < len(free); i++ {
		switch {
		case free[i].InFlight < free[best].InFlight:
			best, ties = i, 1
		case free[i].InFlight == free[best].InFlight:
			if ties++; rand.IntN(ties) == 0 {
				best = i
			}
		}
	}
	cost := func(c Candidate) float64 { return float64(c.InFlight) }
	return explain(p.Name(), cluster.TermLoad, &free[best], candidates, cost), nil
}

func eligible(candidates []Candidate) ([]Candidate, error) {
	if len(candidates) == 0 {
		return nil, ErrNoWorkers
	}
	var free []Candidate
	for _, c := range candidates {
		if c.Excluded == "" {
			free = append(free, c)
		}
	}
	if len(free) == 0 {
		return nil, ErrAllExcluded
	}
	return free, nil
}

// explain builds a decision that lists the candidates with their costs.
func explain(policy, term string, chosen *Candidate, all []Candidate, cost func(Candidate) float64) Decision {
	d := Decision{Policy: policy, Weighed: []string{term}}
	if chosen != nil {
		d.Chosen = *chosen
	}
	for _, c := range all {
		rc := cluster.RouteCandidate{Worker: c.Worker, ID: c.ID, Load: c.InFlight, Excluded: c.Excluded}
		if c.Excluded == "" && cost != nil {
			rc.Cost = cost(c)
		}
		d.Candidates = append(d.Candidates, rc)
	}
	rank := func(c cluster.RouteCandidate) int {
		switch {
		case chosen != nil && c.ID == chosen.ID:
			return 0
		case c.Excluded == "":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(d.Candidates, func(a, b cluster.RouteCandidate) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			return ra - rb
		}
		switch {
		case a.Cost < b.Cost:
			return -1
		case a.Cost > b.Cost:
			return 1
		}
		return cluster.CompareNames(a.Worker, b.Worker)
	})
	return d
}
