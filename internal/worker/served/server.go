package served

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// Config describes a server that is ready.
type Config struct {
	Backend string // cluster.BackendVLLM, ...
	Engine  external.Engine
	Facts   external.Facts
	// Model is the name by which the server knows the model.
	Model string
	// URL is where it is reached, Connector how it exchanges KV, and Host where others are told
	// to reach it: for the status.
	URL, Connector, Host string
	// Tokenizer turns texts of servers that tell no tokens into tokens; nil for a model whose
	// prompts only the server tokenizes.
	Tokenizer *tokenizer.Tokenizer
	BlockSize int // of the router, in tokens
	// Events follows the KV events of the server; nil if nobody does.
	Events Events
	// Exited is closed when the process of the server has ended, and Exit says why; nil for a
	// server that somebody else runs.
	Exited <-chan struct{}
	Exit   func() error
	Log    *slog.Logger

	Waits Waits // zero means DefaultWaits
}

// Events follows KV events.
type Events interface {
	// Tell names who is told of changes, in blocks of the router, before Run. Run returns when
	// ctx ends.
	Tell(engine.KVSink)
	Run(ctx context.Context)
	// Resident lists the blocks that the server holds now, parents before their children. It
	// calls at when it looks.
	Resident(ctx context.Context, at func()) ([]uint64, error)
	Status() cluster.ServerEvents
	// Forget gives all blocks up: the server has lost them.
	Forget()
}

// ErrNoClear is returned where somebody wants the prefix cache of a server cleared.
var ErrNoClear = &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "the engine of this worker is a server whose cache cannot be cleared from here"}

// Waits are how often a server is asked, and for how long.
type Waits struct {
	Load   time.Duration // between two looks at its load
	Health time.Duration // between two looks at its health
	Probe  time.Duration // between two looks at what it is, and which adapters it has
	Doubt  time.Duration // to such a look after the failure of an adapter
	Ask    time.Duration // for an answer
	Sleep  time.Duration // until it sleeps, or has woken
	// Failures is how often in a row its health may fail before the worker ends.
	Failures int
}

// DefaultWaits are the waits outside tests.
var DefaultWaits = Waits{Load: time.Second, Health: 2 * time.Second, Probe: 10 * time.Second, Doubt: time.Second, Ask: 2 * time.Second, Sleep: 5 * time.Minute, Failures: 3}

// maxOpen bounds the requests that a worker has at its server; beyond it, others shall take them.
const maxOpen = 4096

// Server is a server in use. Its methods may run concurrently.
type Server struct {
	Config
	// over ends when Run does: requests cannot go on then.
	over    context.Context
	endOver context.CancelCauseFunc
	turned  chan struct{} // capacity 1; see Turned

	// doubt asks Run to look soon whether the server still has its adapters.
	doubt chan struct{}

	mu       sync.Mutex
	adapters []string      // that are offered, sorted; the list is never changed
	odd      int           // adapters that are not
	changed  chan struct{} // closed when adapters change
	sleep    sleeping
	closed   bool // to new requests
	requests map[*request]struct{}
	load     external.Load // as last told; a figure that was never told is nil
	noLoad   string        // why it was not told
	asked    time.Time     // when the load was last asked for
	freed    time.Time     // when the last request ended
	legs     legs
	stats    cluster.WorkerStats
	// rate is the measured speed of prompts, in tokens per second; 0 before the first.
	rate float64
}

// legs counts first legs; see cluster.ServerStatus.
type legs struct {
	begun, failed, stranded uint64
	failure, host           string
}

// maxFailure bounds the text of a failure in a status, in bytes.
const maxFailure = 300

func (s *Server) leg(count func(*legs)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count(&s.legs)
}

// Status describes the server.
func (s *Server) Status() *cluster.ServerStatus {
	s.mu.Lock()
	st := &cluster.ServerStatus{
		Backend: s.Backend, Version: s.Facts.Version, URL: s.URL, Started: s.Exited != nil, Model: s.Model, Connector: s.Connector, Pair: s.Facts.Pair, Host: s.Host,
		BlockSize: s.Facts.BlockSize, MaxModelLen: s.Facts.MaxModelLen, NoLoad: s.noLoad,
		FirstLegs: s.legs.begun, FailedLegs: s.legs.failed, LegFailure: s.legs.failure, StrandedLegs: s.legs.stranded,
		SideChannel: s.legs.host, NeedsPrefill: s.needsPrefill(), Adapters: s.adapters, OddAdapters: s.odd,
	}
	s.mu.Unlock()
	if s.Facts.Meets != nil {
		st.SideChannel = s.Facts.Meets.Host
	}
	if s.Events != nil {
		st.Events = new(s.Events.Status())
	}
	return st
}

// request is one request at the server.
type request struct {
	id      string
	began   time.Time
	prompt  int // tokens, estimated for a body
	output  int
	cached  int  // of the prompt
	started bool // the prompt is computed
}

// New returns a server in use. Run must be called.
func New(cfg Config) *Server {
	if cfg.Waits == (Waits{}) {
		cfg.Waits = DefaultWaits
	}
	s := &Server{Config: cfg, requests: map[*request]struct{}{}, turned: make(chan struct{}, 1), doubt: make(chan struct{}, 1), changed: make(chan struct{})}
	s.adapters, s.odd = offered(cfg.Facts.Adapters)
	s.over, s.endOver = context.WithCancelCause(context.Background())
	s.sleep.awake, s.sleep.doze = context.WithCancelCause(context.Background())
	return s
}

// Run watches the server until ctx ends. It returns an error when the server cannot be used any
// more: its process has ended, it does not answer, or it has become another one.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { s.endOver(err) }()
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	if s.Events != nil {
		wg.Go(func() { s.Events.Run(ctx) })
	}
	wg.Go(func() { s.watchLoad(ctx) })
	probe := time.NewTimer(s.Waits.Probe)
	defer probe.Stop()
	look := time.NewTimer(s.Waits.Health)
	defer look.Stop()
	doubted := false
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Exited:
			return s.Exit()
		case <-s.doubt:
			if !doubted { // later failures do not put it off
				probe.Reset(s.Waits.Doubt)
			}
			doubted = true
		case <-probe.C:
			probe.Reset(s.Waits.Probe)
			doubted = false
			if err := s.same(ctx); err != nil && !errors.Is(err, external.ErrNotReady) { // its health says more
				return err
			}
		case <-look.C:
			err := s.well(ctx)
			if err == nil {
				failures = 0
				look.Reset(s.Waits.Health)
				continue
			}
			if failures++; failures >= s.Waits.Failures && ctx.Err() == nil {
				return fmt.Errorf("the server of %s does not answer: %w", s.Backend, err)
			}
			look.Reset(s.Waits.Health / 4)
		}
	}
}

func (s *Server) ask(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Waits.Ask)
	defer cancel()
	return f(ctx)
}

// errOther is returned when another server answers in the place of the one that was probed.
var errOther = errors.New("the server was restarted with another configuration")

// same fails if the server is not the one any more that was probed.
func (s *Server) same(ctx context.Context) error {
	return s.ask(ctx, func(ctx context.Context) error {
		now, err := s.Engine.Probe(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", external.ErrNotReady, err)
		case now.Pair != s.Facts.Pair, now.MaxModelLen != s.Facts.MaxModelLen, now.BlockSize != s.Facts.BlockSize, now.Mode != s.Facts.Mode:
			return errOther
		}
		s.noteAdapters(now.Adapters)
		return nil
	})
}

func (s *Server) watchLoad(ctx context.Context) {
	t := time.NewTicker(s.Waits.Load)
	defer t.Stop()
	for failed := false; ; {
		_, err := s.look(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.Log.Warn("the server does not tell its load: only requests of this worker count", "error", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// look asks the server for its load.
func (s *Server) look(ctx context.Context) (l external.Load, err error) {
	asked := time.Now()
	err = s.ask(ctx, func(ctx context.Context) error {
		l, err = s.Engine.Load(ctx)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.load, s.noLoad, s.asked = external.Load{}, cut(err.Error()), time.Time{} // what it told once says nothing about now
		return l, err
	}
	s.load, s.noLoad, s.asked = l, "", asked
	if l == (external.Load{}) {
		s.noLoad = "it tells no figures"
	}
	return l, nil
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "") }

// admit takes a request in.
func (s *Server) admit(p *protocol.PreprocessedRequest) (*request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "the worker is draining"}
	case s.sleep.asleep:
		return nil, errAsleep
	case len(s.requests) >= maxOpen:
		s.stats.RejectedTotal++
		return nil, &requestplane.RemoteError{Kind: requestplane.KindOverloaded, Message: fmt.Sprintf("%d requests are at the server", maxOpen)}
	}
	r := &request{id: p.RequestID, began: time.Now(), prompt: p.PromptTokens()}
	s.requests[r] = struct{}{}
	s.stats.RequestsTotal++
	return r, nil
}

// computed records that the prompt of a request is computed, with cached tokens of it found in
// the server's cache; -1 if unknown.
func (s *Server) computed(r *request, cached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.started {
		return
	}
	r.started, r.cached = true, max(cached, 0)
	uncached := r.prompt - max(cached, 0)
	s.stats.PromptTokensTotal += count(r.prompt)
	s.stats.CachedTokensTotal += count(max(cached, 0))
	s.stats.ComputedTotal += count(uncached)
	if took := time.Since(r.began).Seconds(); cached >= 0 && uncached >= measured && len(s.requests) == 1 && took > 0 {
		now := float64(uncached) / took
		if s.rate > 0 {
			now = s.rate + (now-s.rate)/4
		}
		s.rate = now
	}
}

// measured is the least number of tokens whose computation tells the speed of prompts: a
// shorter one tells the time of a round trip.
const measured = 256

func count(n int) uint64 { return uint64(max(n, 0)) } // #nosec G115 -- not negative

func (s *Server) generated(r *request, tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.output += tokens
	s.stats.GeneratedTotal += count(tokens)
}

// release ends a request; err says how.
func (s *Server) release(r *request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, r)
	s.freed = time.Now()
	switch {
	case err == nil:
		s.stats.FinishedTotal++
	default:
		s.stats.CancelledTotal++
	}
}

// Stats returns the load figures. What the server does not tell is counted from the requests
// of this worker: no figure is zero because it is unknown.
func (s *Server) Stats() cluster.WorkerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, f := s.stats, s.Facts
	mine, tokens := 0, 0
	for r := range s.requests {
		mine++
		tokens += r.prompt + r.output
		if !r.started {
			st.Prefilling++
			st.PrefillTokens += r.prompt
		}
	}
	st.Running = mine
	if s.load.Running != nil && s.load.Waiting != nil {
		// Others may use the server, too, and it tells both a moment late.
		st.Running, st.Waiting = max(*s.load.Running, mine-*s.load.Waiting), *s.load.Waiting
	} else if s.load.Running != nil {
		st.Running = max(*s.load.Running, mine)
	}
	st.MaxSeqs, st.BlockSize, st.PrefillRate = f.MaxSeqs, s.BlockSize, s.rate
	st.KVTotal = s.blocks()
	if st.KVTotal == 0 {
		return st
	}
	st.KVActive = (tokens + s.BlockSize - 1) / s.BlockSize
	if u := s.load.KVUsage; u != nil {
		st.KVActive = int(*u * float64(st.KVTotal))
	}
	st.KVActive = min(max(st.KVActive, 0), st.KVTotal)
	return st
}

// blocks is the size of the server's KV pool in blocks of the router, 0 if it does not tell.
func (s *Server) blocks() int { return s.Facts.KVBlocks * max(s.Facts.BlockSize, 0) / s.BlockSize }

// StopAdmission refuses new requests until ResumeAdmission.
func (s *Server) StopAdmission() { s.setClosed(true) }

// ResumeAdmission takes new requests again.
func (s *Server) ResumeAdmission() { s.setClosed(false) }

func (s *Server) setClosed(v bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = v
}

// Sequences lists the requests at the server, oldest first, at most limit, and counts all.
func (s *Server) Sequences(limit int) ([]cluster.Sequence, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit == 0 {
		return nil, len(s.requests)
	}
	all := slices.SortedFunc(maps.Keys(s.requests), func(a, b *request) int { return a.began.Compare(b.began) })
	out := make([]cluster.Sequence, min(limit, len(all)))
	for i := range out {
		r := all[i]
		out[i] = cluster.Sequence{
			ID: r.id, State: cluster.SequencePrefill, PromptTokens: r.prompt, CachedTokens: r.cached, OutTokens: r.output, AgeMS: time.Since(r.began).Milliseconds(),
		}
		if r.started {
			out[i].State, out[i].ComputedTokens = cluster.SequenceDecode, r.prompt+r.output
		}
	}
	return out, len(all)
}

// proofAge is how old the word of a server may be that it runs nothing. A drain asks often, and a
// server shall not be kept busy by that.
const proofAge = 200 * time.Millisecond

// AtServer counts what is at the server: the requests of this worker or, once these have ended,
// what the server itself says since then to run and to have waiting. That is the proof that it may
// be stopped. A server that does not tell has nothing then; of one that cannot be asked nothing
// is proven, and there is one.
func (s *Server) AtServer(ctx context.Context) int {
	s.mu.Lock()
	n, l := len(s.requests), s.load
	fresh := s.asked.After(s.freed) && time.Since(s.asked) < proofAge
	s.mu.Unlock()
	if n > 0 {
		return n
	}
	if !fresh {
		var err error
		if l, err = s.look(ctx); err != nil {
			return 1
		}
	}
	for _, v := range []*int{l.Running, l.Waiting} {
		if v != nil {
			n = max(n, *v)
		}
	}
	return n
}

// Resident lists the blocks in the server's prefix cache, as its events tell.
func (s *Server) Resident(ctx context.Context, at func()) ([]uint64, error) {
	if s.Events == nil {
		at()
		return nil, nil
	}
	return s.Events.Resident(ctx, at)
}

// needsPrefill reports that the server was started for the second leg alone.
func (s *Server) needsPrefill() bool {
	return s.Engine.Exchange() == external.ExchangeConcurrent && s.Facts.Mode == string(cluster.RoleDecode)
}

// Describe adds the limits of the server to a card.
func (s *Server) Describe(card *cluster.ModelCard) {
	if n := s.Facts.MaxModelLen; n > 0 {
		card.ContextLength = n
	}
	card.BlockSize = s.BlockSize
	card.Adapters, _ = s.Adapters()
	rt := &card.Runtime
	rt.TotalKVBlocks, rt.MaxNumSeqs, rt.TensorParallel = s.blocks(), s.Facts.MaxSeqs, max(s.Facts.TensorParallel, 1)
	rt.Backend, rt.Exchange = s.Backend, string(s.Engine.Exchange())
	if rt.Exchange != "" {
		rt.Pair = s.Facts.Pair
	}
	switch card.WorkerType {
	case cluster.RolePrefill:
		rt.Meets = s.Facts.Meets
	case cluster.RoleDecode:
		rt.NeedsPrefill = s.needsPrefill()
	}
}
