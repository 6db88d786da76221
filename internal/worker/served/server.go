package served

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/external"
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
	// Encoded hears of each item that the server has encoded for others; it must not block. nil
	// for nobody.
	Encoded func(cluster.Encoding)
	Log     *slog.Logger

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
	Encode time.Duration // for one item at another server
	// Failures is how often in a row its health may fail before the worker ends.
	Failures int
}

// DefaultWaits are the waits outside tests.
var DefaultWaits = Waits{Load: time.Second, Health: 2 * time.Second, Probe: 10 * time.Second, Doubt: time.Second, Ask: 2 * time.Second, Sleep: 5 * time.Minute, Encode: time.Minute, Failures: 3}

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
