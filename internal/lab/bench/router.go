package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/router"
)

// routerScale holds the sizes of the section router.
type routerScale struct {
	rate    int // requests per second
	window  time.Duration
	workers int
	tokens  int // of a prompt
	shares  int // prefixes that prompts share
	blocks  int // of each worker
	turns   turns
}

const (
	routerBlockSize = 16    // tokens
	routerContext   = 16384 // tokens
	routerChunk     = 8192  // tokens of a step
)

// Column keys of this section.
const (
	keyAnswer      = "answer_ms"
	keyDecided     = "decided_ms"
	keyReused      = "reused_percent"
	keyCPURequest  = "cpu_us_per_request"
	keyAddedByCase = "added_p95_ms"
	keyAddedWork   = "added_cpu_us_per_request"
	keyRouter      = "router_us_per_request"
	keyCores       = "router_cores"
)

// routerPart is a part of what router and index do in a frontend. A sample of a profile
// belongs to the first part of which it has a function.
type routerPart struct {
	key, title string
	functions  []string // beginnings of their names
}

const ofModule = "github.com/dynctl/dynctl/internal/"

func routerParts() []routerPart {
	return []routerPart{
		{"hash_us", "hash", []string{ofModule + "frontend.(*generation).routed"}},
		{"look_up_us", "look up", []string{ofModule + "kvindex.(*Index).Lookup", ofModule + "frontend.(*caches)"}},
		{"index_us", "follow events", []string{ofModule + "kvfeed", ofModule + "kvindex"}},
		{"tell_us", "tell others", []string{ofModule + "replicasync", ofModule + "frontend.(*Frontend).announceDecision"}},
		{"choose_us", "choose", []string{ofModule + "router", ofModule + "frontend.(*generation).pick"}},
	}
}

// measureRouter measures what choosing workers costs a frontend.
func measureRouter(ctx context.Context, s *session) (Section, error) {
	sc := s.scale.router
	sec := Section{
		Title: "Router and index of a frontend",
		About: fmt.Sprintf("%d requests a second come at random times, each with a prompt of %s token ids of which half is\n"+
			"one of %d shared prefixes on average, and ask for one token. One frontend, %d workers with a mock\n"+
			"engine that takes no time, the embedded stores and the client share one process and its cores.\n"+
			"The policies take turns at the same frontend, which follows the KV events of the workers under\n"+
			"each. Blocks have %d tokens, and each worker %s of them.",
			sc.rate, number(float64(sc.tokens)), sc.shares, sc.workers, routerBlockSize, number(float64(sc.blocks))),
	}
	dir, err := model.Builtin(s.home)
	if err != nil {
		return sec, err
	}
	p, err := newPathBench(s, dir)
	if err != nil {
		return sec, err
	}
	defer p.close()
	n, err := p.node(ctx, nodeSpec{
		name: "router", decode: sc.workers, blocks: sc.blocks, blockSize: routerBlockSize, chunk: routerChunk,
		load: p.mockLoader(func() engine.Backend {
			return p.mockBackend(mock.Options{BlockSize: routerBlockSize, MaxContext: routerContext}, new(atomic.Int64))
		}),
	})
	if err != nil {
		return sec, err
	}
	defer n.close()
	decisions, err := n.decisions(ctx)
	if err != nil {
		return sec, err
	}
	l := newRouterLoad(sc, n.url, p.model.TokenLimit(), decisions)
	defer l.close()
	return sec, s.routerCases(ctx, &sec, l)
}

// routerCases lets policies take turns. The first one warms the caches and is not
// reported.
func (s *session) routerCases(ctx context.Context, sec *Section, l *routerLoad) error {
	s.say("router: filling the caches")
	if _, err := l.run(ctx, router.KV); err != nil {
		return err
	}
	var cases []Case
	for _, policy := range []string{router.KV, router.RoundRobin} {
		cases = append(cases, Case{policy, func(ctx context.Context) (Sample, error) { return l.run(ctx, policy) }})
	}
	res, err := s.takeTurns(ctx, "router", s.scale.router.turns, cases)
	if err != nil {
		return err
	}
	res.difference(router.KV, keyAddedByCase, keyAnswer+"_p95", router.RoundRobin)
	res.difference(router.KV, keyAddedWork, keyCPURequest, router.RoundRobin)
	sec.Tables = append(sec.Tables, res.table("Requests", "", []Column{
		{keyRate, "requests/s", "answered, of the length of the run until the last answer"},
		{keyReused, "% reused", "prompt tokens that the worker had in its cache"},
		{keyAnswer + "_p50", "answer p50 ms", "from the time at which the request was due"},
		{keyAnswer + "_p95", "p95", ""},
		{keyAddedByCase, "added p95 ms", "answer p95 less that of round-robin"},
		{keyDecided + "_p50", "decision p50 ms", "from the prompt's tokens to the worker: hash, look up, choose"},
		{keyDecided + "_p95", "p95", ""},
		{keyCPURequest, "CPU µs/request", "processor time of the whole process, the client's and the workers' included"},
		{keyAddedWork, "added CPU µs/request", "the same less that of round-robin"},
	}))
	columns := []Column{
		{keyRouter, "router and index µs/request", "processor time of all functions below"},
		{keyCores, "cores at that rate", ""},
	}
	for _, part := range routerParts() {
		columns = append(columns, Column{part.key, part.title, ""})
	}
	sec.Tables = append(sec.Tables, res.table("Router and index",
		"By a CPU profile of the process: samples that have a function of the router, the index, its feed,\n"+
			"the exchange between frontends, or what of the frontend calls them. µs a request.", columns))
	return nil
}

// account adds the processor time of router and index to a sample.
func (s Sample) account(stacks []stack, requests int, took time.Duration) {
	parts := routerParts()
	spent := make([]time.Duration, len(parts))
	var all time.Duration
	for _, st := range stacks {
		i := slices.IndexFunc(parts, func(p routerPart) bool { return p.has(st) })
		if i >= 0 {
			spent[i] += st.spent
			all += st.spent
		}
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(requests) }
	for i, p := range parts {
		s[p.key] = each(spent[i])
	}
	s[keyRouter], s[keyCores] = each(all), all.Seconds()/took.Seconds()
}

func (p routerPart) has(st stack) bool {
	return slices.ContainsFunc(st.functions, func(f string) bool {
		return slices.ContainsFunc(p.functions, func(begin string) bool {
			rest, ok := strings.CutPrefix(f, begin)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '/')
		})
	})
}

// decisionTimes collects how long a frontend's decisions took.
type decisionTimes struct {
	mu   sync.Mutex
	took []time.Duration
}

// decisionsLate is how long the event of a decision may take.
const decisionsLate = 2 * time.Second

// await waits for n times since the last take, though not for long: events may be lost.
func (d *decisionTimes) await(ctx context.Context, n int) {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	late := time.NewTimer(decisionsLate)
	defer late.Stop()
	for {
		d.mu.Lock()
		have := len(d.took)
		d.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-poll.C:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// take returns the times since the last call.
func (d *decisionTimes) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.took
	d.took = nil
	return out
}

// decisions follows the decisions of the node's frontend until the node is closed.
func (n *node) decisions(ctx context.Context) (*decisionTimes, error) {
	secret, err := credentials.Load(n.secretFile)
	if err != nil {
		return nil, err
	}
	bus, err := dial.NATS(config.NATSClient{}, n.at.NATS, "bench", dial.Identity{User: "bench", Secret: secret}, n.log)
	if err != nil {
		return nil, err
	}
	n.back.Push("close the NATS connection", func(context.Context) error { return bus.Close() })
	d := &decisionTimes{}
	_, err = bus.Subscribe(context.WithoutCancel(ctx), events.Subject(cluster.DefaultNamespace, "*", cluster.TopicRouterDecisions), func(e events.Event) {
		var of struct {
			DecidedNS int64  `json:"decided_ns"`
			Prefill   string `json:"prefill"`
		}
		if e.Decode(&of) != nil || of.Prefill != "" {
			return // a decision comes again with where the prompt was computed
		}
		d.mu.Lock()
		d.took = append(d.took, time.Duration(of.DecidedNS))
		d.mu.Unlock()
	})
	if err == nil {
		_, err = bus.Ping(ctx) // the server has the subscription
	}
	return d, err
}
