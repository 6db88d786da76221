package router

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Errors of Pick.
var (
	// ErrNoWorkers is returned when there is no candidate at all.
	ErrNoWorkers = errors.New("no worker is ready")
	// ErrAllExcluded is returned when every candidate is excluded.
	ErrAllExcluded = errors.New("all workers are excluded")
	// ErrAllBusy is returned when every candidate is excluded, some because they are busy.
	ErrAllBusy = errors.New("all workers are busy")
)

// Candidate is a worker that could take a request, as a router sees it at one moment.
type Candidate struct {
	ID     cluster.InstanceID
	Worker string
	// Excluded says why the worker must not be chosen; empty if it may be.
	Excluded string
	// Overlap holds the leading blocks of the prompt that are in the worker's cache.
	Overlap Overlap
	// Preference says how much the request prefers the worker; see [Constraints].
	Preference float64

	// PrefillRate is the speed at which the worker computes prompts, in tokens per second,
	// as its steps show it; 0 if unknown.
	PrefillRate float64
	// TransferRate is the speed at which its KV has moved, in tokens per second; 0 if unknown.
	TransferRate float64
	// KVBlocks is the size of its KV pool, and KVInUse how many of them are neither free
	// nor only cached, as the worker says; 0 if unknown.
	KVBlocks, KVInUse int
	// MaxBatchTokens is the most tokens in one of its steps; 0 if unknown.
	MaxBatchTokens int

	// The rest is filled in by [Load.Choose]. InFlight is the number of requests that this
	// router knows to be running on the worker.
	InFlight int
	// Prefills counts those that have no output yet, PrefillTokens the uncached tokens of
	// their prompts.
	Prefills      int
	PrefillTokens int
	// ActiveBlocks counts the KV blocks that they use: those of their prompts, where a shared
	// block counts once, and for each request the block that it fills.
	ActiveBlocks int
	// Shared counts the leading blocks of the prompt that requests in flight use. They are
	// in the cache, or will be once these requests are computed.
	Shared int

	// Evicts is the share of the blocks computed there that evict one that comes again, as
	// far as the router can tell.
	Evicts float64

	busy bool // Excluded by the limits of the view
}

// Uncached returns how many tokens of the prompt the worker would have to compute. Of a
// prompt that is wholly cached it computes the last token.
func (c *Candidate) Uncached(r Request) int {
	if r.PromptTokens <= 0 {
		return 0
	}
	return max(1, r.PromptTokens-max(c.Shared, c.Overlap.Blocks())*r.BlockSize)
}

// Overlap counts the leading blocks of a prompt that a worker has, by the fastest tier
// that holds each.
type Overlap struct {
	Device, Host, Disk int
}

// Blocks returns the length of the overlap over all tiers.
func (o Overlap) Blocks() int { return o.Device + o.Host + o.Disk }

// Request holds the properties of a request that policies use.
type Request struct {
	ID string
	// PromptTokens is the prompt length. Hashes are the sequence hashes of its full
	// blocks of BlockSize tokens.
	PromptTokens int
	BlockSize    int
	Hashes       []uint64
	// Session is the worker of the session's last request, which is preferred; 0 if there
	// is none.
	Session cluster.InstanceID
}

// View is what a router knows of the workers at the moment of a decision.
type View struct {
	Candidates []Candidate
	Limits     BusyLimits // applied by [Load.Choose]
	Turn       uint64     // decisions made before; filled in by [Load.Choose]
}

// Decision is the choice of a worker, with its reasons.
type Decision struct {
	Chosen     Candidate
	Policy     string
	Candidates []cluster.RouteCandidate // the chosen first, then by cost, excluded last
	Weighed    []string                 // terms of the cost, see cluster.TermLoad
}

// Policy chooses one of the candidates. Pick is a pure function. It returns ErrNoWorkers,
// ErrAllExcluded or ErrAllBusy, together with a decision that lists the candidates.
type Policy interface {
	Name() string
	Pick(r Request, v View) (Decision, error)
}

// Names of the policies.
const (
	Direct      = "direct"
	KV          = "kv"
	LeastLoaded = "least-loaded"
	PowerOfTwo  = "power-of-two"
	Random      = "random"
	RoundRobin  = "round-robin"
)

// Price returns the terms of the cost of every candidate of free, in their order. The
// candidate with the lowest cost is chosen.
type Price func(r Request, v View, free []Candidate) [][]cluster.CostTerm

// policies are all policies, by name. With Direct a request names its worker, so that it is the only
// candidate; one that came under another policy goes to the least loaded worker.
var policies = map[string]costed{
	Direct:      {price: priceLoad, stay: stayLoad},
	KV:          {price: priceKV, stay: stayKV},
	LeastLoaded: {price: priceLoad, stay: stayLoad},
	PowerOfTwo:  {price: priceTwo, stay: stayLoad},
	Random:      {price: priceRandom, stay: stayRandom},
	RoundRobin:  {price: priceTurn, stay: stayTurn},
}

// Policies lists the names that NewPolicy accepts.
func Policies() []string { return slices.Sorted(maps.Keys(policies)) }

// NewPolicy returns the policy of that name. Dynamo's spellings, with underscores, are
// accepted, too.
func NewPolicy(name string) (Policy, error) {
	own := strings.ReplaceAll(name, "_", "-")
	if p, known := policies[own]; known {
		p.name = own
		return p, nil
	}
	return nil, fmt.Errorf("unknown router policy %q (known: %s)", name, strings.Join(Policies(), ", "))
}

// ByCost returns a policy that takes the candidate with the lowest cost. It does not keep
// sessions together.
func ByCost(name string, price Price) Policy { return costed{name: name, price: price} }

// costed takes the eligible candidate with the lowest cost. Ties go to the worker of the
// request's session, or else to the smallest hash
// of request and worker: requests spread evenly, and the same request over the same
// candidates gives the same decision, in every frontend and in a replay.
type costed struct {
	name  string
	price Price
	stay  stay // nil: sessions have no meaning
}

func (p costed) Name() string { return p.name }

func (p costed) Pick(r Request, v View) (Decision, error) {
	free, err := eligible(v.Candidates)
	if err != nil {
		d := Decision{Policy: p.name, Candidates: record(v.Candidates, nil)}
		rank(d.Candidates, 0)
		return d, err
	}
	terms := p.price(r, v, free)
	addPreference(free, terms)
	session := p.addSession(r, free, terms)
	best := max(session, 0)
	for i := range free {
		c, least := sum(terms[i]), sum(terms[best])
		if c < least || c == least && best != session && tieHash(r.ID, free[i].ID) < tieHash(r.ID, free[best].ID) {
			best = i
		}
	}
	d := Decision{Policy: p.name, Chosen: free[best], Candidates: record(v.Candidates, terms)}
	for _, t := range terms[0] {
		d.Weighed = append(d.Weighed, t.Name)
	}
	rank(d.Candidates, d.Chosen.ID)
	return d, nil
}

// sum adds up the terms of a cost.
func sum(terms []cluster.CostTerm) (cost float64) {
	for _, t := range terms {
		cost += t.Value
	}
	return cost
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
	err := ErrAllExcluded
	for _, c := range candidates {
		if c.Excluded == "" {
			free = append(free, c)
		}
		if c.busy {
			err = ErrAllBusy
		}
	}
	if len(free) == 0 {
		return nil, err
	}
	return free, nil
}

// record describes the candidates with the terms of the eligible ones, in their order.
func record(all []Candidate, terms [][]cluster.CostTerm) []cluster.RouteCandidate {
	var out []cluster.RouteCandidate
	for _, c := range all {
		rc := cluster.RouteCandidate{Worker: c.Worker, ID: c.ID, Load: c.InFlight, Overlap: c.Overlap.Blocks(), Excluded: c.Excluded}
		if c.Excluded == "" {
			rc.Terms, terms = terms[0], terms[1:]
			rc.Cost = sum(rc.Terms)
		}
		out = append(out, rc)
	}
	return out
}

// rank sorts candidates: the chosen first, then by cost, the excluded last.
func rank(list []cluster.RouteCandidate, chosen cluster.InstanceID) {
	class := func(c cluster.RouteCandidate) int {
		switch {
		case c.Excluded != "":
			return 2
		case c.ID == chosen:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b cluster.RouteCandidate) int {
		return cmp.Or(class(a)-class(b), cmp.Compare(a.Cost, b.Cost), cluster.CompareNames(a.Worker, b.Worker))
	})
}
