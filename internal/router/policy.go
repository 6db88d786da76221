package router

import (
	"errors"
	"fmt"
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
	// Unhealthy says why the worker may not answer; empty if nothing is known against it.
	Unhealthy string
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

	busy    bool // Excluded by the limits of the view
	avoided bool // Excluded because it is unhealthy
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

// First returns the overlap with the first n blocks of the prompt.
func (o Overlap) First(n int) Overlap {
	o.Device = min(o.Device, n)
	o.Host = min(o.Host, n-o.Device)
	o.Disk = min(o.Disk, n-o.Device-o.Host)
	return o
}

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

	scratch *scratch // nil for memory of its own
}

// Decision is the choice of a worker, with its reasons.
type Decision struct {
	Chosen Candidate
	Policy string
	// Candidates are the Explained best: the chosen first, then by cost, excluded last.
	Candidates []cluster.RouteCandidate
	Weighed    []string // terms of the cost, see cluster.TermLoad
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

// Price adds the terms of the cost of every candidate of free, in their order. The
// candidate with the lowest cost is chosen.
type Price func(r Request, v View, free []Candidate, terms *Terms)

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
// request's session, or else to the smallest hash of request and worker: requests spread
// evenly, and the same request over the same candidates gives the same decision, in every
// frontend and in a replay.
type costed struct {
	name  string
	price Price
	stay  stay // nil: sessions have no meaning
}

func (p costed) Name() string { return p.name }

func (p costed) Pick(r Request, v View) (Decision, error) {
	s := v.scratch
	if s == nil {
		s = new(scratch)
	}
	free, err := s.eligible(v.Candidates)
	if err != nil {
		return Decision{Policy: p.name, Candidates: s.explain(v.Candidates, nil, -1)}, err
	}
	terms := &s.terms
	terms.reset(len(free))
	p.price(r, v, free, terms)
	addPreference(free, terms)
	session := p.addSession(r, free, terms)
	s.cost = terms.sums(s.cost)
	best, request, least := max(session, 0), startTie(r.ID), uint64(0)
	known := false // least is the hash of best
	for i, cost := range s.cost {
		switch {
		case cost > s.cost[best] || i == best:
		case cost < s.cost[best]:
			best, known = i, false
		case best != session:
			if !known {
				least, known = request.with(free[best].ID), true
			}
			if hash := request.with(free[i].ID); hash < least {
				best, least = i, hash
			}
		}
	}
	return Decision{Policy: p.name, Chosen: free[best], Weighed: slices.Clone(terms.names), Candidates: s.explain(v.Candidates, free, best)}, nil
}

// tie is the beginning of a hash of a request and a worker.
type tie uint64

// Constants of FNV-1a.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func startTie(request string) tie {
	h := uint64(fnvOffset)
	for i := range len(request) {
		h = (h ^ uint64(request[i])) * fnvPrime
	}
	return tie(h)
}

// with returns the 64-bit FNV-1a hash of a request's id and a worker's instance id, mixed
// by the finalizer of MurmurHash3, as FNV's last bytes hardly reach its high bits.
func (t tie) with(worker cluster.InstanceID) uint64 {
	x := uint64(t)
	for shift := 0; shift < 64; shift += 8 {
		x = (x ^ uint64(worker)>>shift&0xff) * fnvPrime
	}
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
