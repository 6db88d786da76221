package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/undo"
)

// Worker is one worker. New makes it, Run takes it through its life.
type Worker struct {
	cfg   Config
	log   *slog.Logger
	board *board
	kv    *kvEvents

	transfers transferCounts
	orders    chan order // drain and resume, for Run

	// Set while Run is under way; readable from other goroutines.
	drt    atomic.Pointer[runtime.DRT]
	engine atomic.Pointer[engine.Engine]
	agent  atomic.Pointer[nixl.Agent]
	meter  *meter

	// Set by Run before anything that uses them starts.
	loaded     *Loaded
	info       engine.BackendInfo
	nixl       *nixl.Agent
	pool       *kvPool
	blockBytes int64
	waiters    *waiters        // decode: remote prefills on their way
	prefills   *runtime.Client // decode: the prefill workers
	peers      *peers          // NIXL metadata of others
	holds      *holds          // prefill: computed KV that decode workers read
	rooms      *rooms          // prefill: where decode workers meet prefills in the background
	others     *runtime.Client // decode: the decode workers that take over sequences
	requests   requests        // decode: of the sequences in the engine
	arrivals   arrivals        // decode: sequences on their way here
	handover   handoverLimits
	served     []*runtime.Served
	announced  []*runtime.Served // those that routers use
	pulling    puller            // prefill: the queue consumer
	workCtx    context.Context   // ends when work in hand must stop
	testing    sync.Mutex        // held while a path is tested on request

	// Shorter in tests.
	proof     time.Duration // revokeTimeout
	grace     time.Duration // drainGrace
	drainPoll time.Duration

	lastDrainReport time.Time // for the drain under way
}

// New returns a worker for an assignment.
func New(cfg Config) *Worker {
	a := cfg.Assignment
	return &Worker{
		cfg: cfg,
		log: cfg.Log.With("worker", a.Name, "role", string(a.Role)),
		board: newBoard(cluster.WorkerStatus{
			Name: a.Name, Role: a.Role, Model: a.Model.Name, Node: cfg.Node, Device: a.Device,
			State: cluster.StatePending, StartedAt: time.Now(), Restarts: cfg.Restarts,
			Generation: a.Generation,
		}),
		kv:       newKVEvents(),
		orders:   make(chan order),
		handover: defaultHandoverLimits(),
		waiters:  newWaiters(),
		holds:    newHolds(),
		rooms:    newRooms(),
		proof:    revokeTimeout, grace: drainGrace, drainPoll: drainPoll,
	}
}

// Name is the worker's name.
func (w *Worker) Name() string { return w.cfg.Assignment.Name }

// Role is the worker's role.
func (w *Worker) Role() cluster.Role { return w.cfg.Assignment.Role }

func (w *Worker) subject(topic string) string {
	return events.Subject(w.cfg.Namespace, w.Role().Component(), topic)
}

// ErrDrained is returned by Run after a drain has ended: everything is released.
var ErrDrained = errors.New("drained")

// Run loads the model, serves until ctx ends, the engine breaks or a drain is
// complete, and releases everything. It returns ErrDrained after a drain and the
// cause of ctx, or the failure, otherwise.
func (w *Worker) Run(ctx context.Context) (err error) {
	var back undo.Stack
	defer func() { back.Run(stopTimeout, w.log) }()

	cfg := w.cfg.Runtime
	cfg.Worker, cfg.Log = w.Name(), w.cfg.Log
	drt, err := runtime.New(ctx, cfg)
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	back.Push("leave the cluster", func(ctx context.Context) error {
		if w.cfg.LastWord != nil {
			w.cfg.LastWord(ctx, err)
		}
		return drt.Close(ctx)
	})
	w.drt.Store(drt)
	// The status key went with the lost lease; write it under the new one.
	drt.OnRelease(func(_, _ cluster.InstanceID) { w.board.update(func(*cluster.WorkerStatus) {}) })

	w.meter = newMeter(w)
	back.Push("remove the metrics", func(context.Context) error { w.meter.close(); return nil })
	drt.OnRelease(func(_, _ cluster.InstanceID) { w.meter.LeaseLosses.Inc() })

	// Background goroutines end, and are awaited, before the lease goes.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	back.Push("stop publishing", func(context.Context) error { stopBackground(); wg.Wait(); return nil })
	wg.Go(func() { w.publishStatus(background) })
	wg.Go(func() { w.publishKVEvents(background) })

	e, err := w.load(ctx, drt, &back)
	if err != nil {
		return err
	}
	return w.serve(ctx, drt, e)
}

// load brings up model, KV pool, data path and engine.
func (w *Worker) load(ctx context.Context, drt *runtime.DRT, back *undo.Stack) (*engine.Engine, error) {
	w.setState(cluster.StateLoading, "")
	begin := time.Now()
	loaded, err := w.cfg.Load(ctx, func(p float64) {
		w.board.update(func(st *cluster.WorkerStatus) { st.Progress = p })
	})
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	w.loaded = loaded
	w.board.update(func(st *cluster.WorkerStatus) { st.Weights = loaded.Card.Weights })
	w.log.Info("model is loaded", "model", loaded.Card.DisplayName, "weights", loaded.Card.Weights, "digest", short(loaded.Card.Digest))
	w.meter.ModelLoadTime.Set(time.Since(begin).Seconds())
	back.Push("release the model", func(context.Context) error {
		err := loaded.Backend.Close()
		loaded.Release()
		return err
	})
	w.info = loaded.Backend.Info()
	w.blockBytes = w.info.KV.BlockBytes()
	mem, err := loaded.Backend.AllocKV(loaded.Blocks)
	if err != nil {
		return nil, fmt.Errorf("allocate %d KV blocks of %d bytes: %w", loaded.Blocks, w.blockBytes, err)
	}
	w.board.update(func(st *cluster.WorkerStatus) { st.MemoryBytes = int64(loaded.Blocks) * w.blockBytes })
	inUse := false
	back.Push("free the KV pool", func(context.Context) error {
		if inUse {
			return errors.New("a stopped process may still write into it: it stays mapped")
		}
		return mem.Close()
	})
	w.setState(cluster.StateWarming, "")
	if err := w.warmUp(ctx, loaded.Backend); err != nil {
		return nil, err
	}

	incarnation := make([]byte, 4)
	_, _ = rand.Read(incarnation) // never fails
	ncfg := w.cfg.NIXL()
	ncfg.Name, ncfg.Log = w.Name()+"."+hex.EncodeToString(incarnation), w.log
	// Blocks may go to another number of ranks, in a piece for each KV head at most.
	ncfg.Limits.Descs = max(ncfg.Limits.Descs, nixl.DefaultDescs, loaded.Blocks*w.info.KV.KVHeads)
	if w.nixl, err = nixl.NewAgent(ncfg); err != nil {
		return nil, fmt.Errorf("start NIXL agent: %w", err)
	}
	w.agent.Store(w.nixl)
	back.Push("close the NIXL agent", func(context.Context) error {
		err := w.nixl.Close()
		inUse = err != nil
		return err
	})
	if w.pool, err = registerPool(w.nixl, w.info.KV, mem); err != nil {
		return nil, fmt.Errorf("register the KV pool: %w", err)
	}

	spec := w.cfg.Assignment.Engine
	e, err := engine.New(engine.Config{
		NumBlocks: loaded.Blocks, MaxSeqs: spec.MaxSeqs, MaxBatchTokens: spec.MaxBatchTokens,
		ITLTarget: time.Duration(spec.ITLTargetMS) * time.Millisecond, Speculative: spec.Speculative, Observe: w.meter.step,
		MaxModelLen: spec.MaxModelLen, HashSeed: loaded.Card.HashSeed, Sink: w.kv, Log: w.log,
	}, loaded.Backend)
	if err != nil {
		return nil, fmt.Errorf("start engine: %w", err)
	}
	w.engine.Store(e)
	// The metadata is there before anyone can learn this agent's name.
	key := func(cluster.InstanceID) string { return cluster.NIXLMetadataKey(w.cfg.Namespace, ncfg.Name) }
	if _, err := drt.PutOwned(ctx, key, func(cluster.InstanceID) []byte { return w.nixl.Metadata() }); err != nil {
		return nil, fmt.Errorf("publish NIXL metadata: %w", err)
	}
	return e, nil
}

// serve runs the engine and everything around it.
func (w *Worker) serve(ctx context.Context, drt *runtime.DRT, e *engine.Engine) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, running := errgroup.WithContext(running)
	w.workCtx = running
	engineCtx, stopEngine := context.WithCancelCause(context.WithoutCancel(ctx))
	g.Go(func() error { return w.engineEnded(running, e.Run(engineCtx)) })
	err := w.follow(running, drt)
	g.Go(func() error { w.readNotifications(running); return nil })
	if err == nil {
		err = func() error {
			if err := w.join(running, drt); err != nil {
				return err
			}
			w.setState(cluster.StateReady, "")
			return w.obey(running)
		}()
	}
	w.log.Info("stopping", "cause", err)
	// First nobody finds us, then nobody reaches us, then the engine ends what is
	// left (its callers are told to go elsewhere), then the rest stops.
	w.leave(context.WithoutCancel(ctx))
	pulled := w.pulling.stop()
	stopEngine(err)
	stop(err)
	w.closeServed(context.WithoutCancel(ctx))
	<-pulled // its handlers end with the engine
	if gerr := g.Wait(); err == nil || errors.Is(err, context.Canceled) {
		err = errors.Join(gerr, err)
	}
	if w.prefills != nil {
		w.prefills.Close()
	}
	if w.others != nil {
		w.others.Close()
	}
	if w.peers != nil {
		w.peers.close()
	}
	return err
}

// follow watches what the role needs to know of others.
func (w *Worker) follow(ctx context.Context, drt *runtime.DRT) (err error) {
	switch w.Role() {
	case cluster.RoleDecode:
		if w.prefills, err = runtime.NewClient(ctx, drt, cluster.RolePrefill.Component(), cluster.EndpointPrefill); err != nil {
			return err
		}
		if w.others, err = runtime.NewClient(ctx, drt, cluster.RoleDecode.Component(), cluster.EndpointHandover); err != nil {
			return err
		}
		w.peers, err = watchPeers(ctx, w, false)
	case cluster.RolePrefill:
		w.peers, err = watchPeers(ctx, w, true)
	}
	return err
}

// engineEnded turns the end of the engine into the reason for the worker's end,
// unless the worker is ending anyway.
func (w *Worker) engineEnded(running context.Context, err error) error {
	if running.Err() != nil || errors.Is(err, ErrDrained) {
		return nil
	}
	return err
}

// warmUp proves that the backend computes, twice the same, before anyone relies
// on it. It uses block 0 of the still empty pool.
func (w *Worker) warmUp(ctx context.Context, b engine.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var logits [2][]float32
	for i := range logits {
		logits[i] = make([]float32, w.info.VocabSize)
		err := b.Step(ctx, []engine.BatchSeq{{Tokens: []uint32{0, 1, 2}, Blocks: []int32{0}, Logits: logits[i]}})
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	for i, l := range logits[0] {
		if math.Float32bits(l) != math.Float32bits(logits[1][i]) {
			return fmt.Errorf("warm up: the same step gave two results for token %d: %v and %v", i, l, logits[1][i])
		}
	}
	return nil
}
