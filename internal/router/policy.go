package router

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
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
	slices.SortFunc(free, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	// The cost of a worker is its distance from the pointer.
	turn := int((p.next.Add(1) - 1) % uint64(len(free)))
	place := make(map[cluster.InstanceID]int, len(free))
	for i, c := range free {
		place[c.ID] = i
	}
	cost := func(c Candidate) float64 { return float64((place[c.ID] - turn + len(free)) % len(free)) }
	return explain(p.Name(), cluster.TermTurn, &free[turn], candidates, cost), nil
}

// leastLoaded takes the candidate with the fewest requests in flight. Ties go to the
// smallest hash of request and worker: requests spread evenly, and the same request over
// the same candidates gives the same decision, in every frontend and in a replay.
type leastLoaded struct{}

func (leastLoaded) Name() string { return LeastLoaded }

func (p leastLoaded) Pick(r Request, candidates []Candidate) (Decision, error) {
	free, err := eligible(candidates)
	if err != nil {
		return explain(p.Name(), cluster.TermLoad, nil, candidates, nil), err
	}
	best := slices.MinFunc(free, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.InFlight, b.InFlight), cmp.Compare(tieHash(r.ID, a.ID), tieHash(r.ID, b.ID)))
	})
	cost := func(c Candidate) float64 { return float64(c.InFlight) }
	return explain(p.Name(), cluster.TermLoad, &best, candidates, cost), nil
}

// tieHash is the 64-bit FNV-1a hash of a request's id and a worker's instance id, mixed
// by the finalizer of MurmurHash3, as FNV's last bytes hardly reach its high bits.
func tieHash(request string, worker cluster.InstanceID) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, request) // a hash never fails
	var id [8]byte
	binary.LittleEndian.PutUint64(id[:], uint64(worker))
	_, _ = h.Write(id[:])
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
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
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cluster.CompareNames(a.Worker, b.Worker))
	})
	return d
}
