package worker

import (
	"cmp"
	"context"
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
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// Worker is one worker. New makes it, Run takes it through its life.
type Worker struct {
	cfg    Config
	log    *slog.Logger
	board  *board
	events *kvEvents

	orders chan order // drain and resume, for Run

	// Set while Run is under way; readable from other goroutines.
	drt    atomic.Pointer[runtime.DistributedRuntime]
	engine atomic.Pointer[engine.Engine]
	agent  atomic.Pointer[nixl.Agent]
	meters atomic.Pointer[meter]
	// metering is held while figures are carried over into the meter.
	metering sync.Mutex
	// writing is held while the status key is written, so that none is written under the
	// lease of a role that the worker has left.
	writing sync.Mutex
	// assigned is what the worker is at present: its role may change while it runs.
	assigned atomic.Pointer[cluster.Assignment]

	// Set by Run before anything that uses them starts.
	loaded    *Loaded
	info      engine.BackendInfo
	kv        *kv.Plane
	waiters   *waiters        // decode: remote prefills on their way
	prefills  *runtime.Client // decode: the prefill workers
	asked     outstanding     // decode: on the prefill queue
	calls     *router.Load    // of this worker at prefill workers, without the queue
	peers     *kv.Peers       // NIXL metadata of others
	holds     *holds          // prefill: computed KV that decode workers read
	rooms     *rooms          // prefill: where decode workers meet prefills in the background
	others    *runtime.Client // decode: the decode workers that take over sequences
	requests  requests        // decode: of the sequences in the engine
	arrivals  arrivals        // decode: sequences on their way here
	handover  handoverLimits
	served    []*runtime.Served
	announced []*runtime.Served // those that routers use
	pulling   puller            // prefill: the queue consumer
	workCtx   context.Context   // ends when work in hand must stop

	// Shorter in tests.
	proof     time.Duration // kv.DefaultProof
	patience  time.Duration // farewellTimeout
	grace     time.Duration // drainGrace
	drainPoll time.Duration

	lastDrainReport time.Time           // for the drain under way
	next            *cluster.Assignment // that the worker turns to when that is complete; nil: to none
}

// New returns a worker for an assignment.
func New(cfg Config) *Worker {
	a := cfg.Assignment
	w := &Worker{
		cfg: cfg,
		log: cfg.Log.With("worker", a.Name),
		board: newBoard(cluster.WorkerStatus{
			Name: a.Name, Role: a.Role, Model: a.Model.Name, Node: cfg.Node, Device: a.Device,
			State: cluster.StatePending, StartedAt: time.Now(), Restarts: cfg.Restarts,
			Generation: a.Generation,
		}),
		events:   newKVEvents(),
		orders:   make(chan order),
		handover: defaultHandoverLimits(),
		waiters:  newWaiters(),
		calls:    router.NewLoad(),
		holds:    newHolds(),
		rooms:    newRooms(),
		proof:    kv.DefaultProof, patience: farewellTimeout, grace: drainGrace, drainPoll: drainPoll,
	}
	w.assigned.Store(&a)
	return w
}

// Name is the worker's name.
func (w *Worker) Name() string { return w.cfg.Assignment.Name }

// Assignment is what the worker is at present: what it was started as, or as what it
// has joined since.
func (w *Worker) Assignment() cluster.Assignment { return *w.assigned.Load() }

// Role is the worker's role at present.
func (w *Worker) Role() cluster.Role { return w.assigned.Load().Role }

func (w *Worker) meter() *meter { return w.meters.Load() }

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

	drt, err := w.newRuntime(ctx)
	if err != nil {
		return err
	}
	back.Push("leave the cluster", func(ctx context.Context) error {
		if w.cfg.LastWord != nil {
			w.cfg.LastWord(ctx, err)
		}
		return w.drt.Load().Close(ctx)
	})
	w.drt.Store(drt)
	w.meters.Store(newMeter(w))
	back.Push("remove the metrics", func(context.Context) error { w.meter().close(); return nil })

	// Background goroutines end, and are awaited, before the lease goes.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	back.Push("stop publishing", func(context.Context) error { stopBackground(); wg.Wait(); return nil })
	wg.Go(func() { w.publishStatus(background) })
	wg.Go(func() { w.publishKVEvents(background) })

	e, err := w.load(ctx, &back)
	if err != nil {
		return err
	}
	return w.serve(ctx, e)
}

// newRuntime takes a lease in the cluster.
func (w *Worker) newRuntime(ctx context.Context) (*runtime.DistributedRuntime, error) {
	cfg := w.cfg.Runtime
	cfg.Worker, cfg.Log = w.Name(), w.cfg.Log
	drt, err := runtime.New(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	drt.OnRelease(func(_, _ cluster.InstanceID) {
		// The status key went with the lost lease; write it under the new one.
		w.board.update(func(*cluster.WorkerStatus) {})
		w.meter().LeaseLosses.Inc()
	})
	return drt, nil
}

// load brings up model, KV pool, data path and engine.
func (w *Worker) load(ctx context.Context, back *undo.Stack) (*engine.Engine, error) {
	w.setState(cluster.StateLoading, "")
	begin := time.Now()
	loaded, err := w.cfg.Load(ctx, func(p float64) {
		w.board.update(func(st *cluster.WorkerStatus) { st.Progress = p })
	})
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	w.loaded = loaded
	w.info = loaded.Backend.Info()
	w.board.update(func(st *cluster.WorkerStatus) {
		st.Weights, st.TensorParallel = loaded.Card.Weights, w.info.TensorParallel
	})
	w.log.Info("model is loaded", "model", loaded.Card.DisplayName, "weights", loaded.Card.Weights, "digest", short(loaded.Card.Digest))
	w.meter().ModelLoadTime.Set(time.Since(begin).Seconds())
	back.Push("release the model", func(context.Context) error {
		err := loaded.Backend.Close()
		loaded.Release()
		return err
	})
	blockBytes := w.info.KV.BlockBytes()
	mem, err := loaded.Backend.AllocKV(loaded.Blocks)
	if err != nil {
		return nil, fmt.Errorf("allocate %d KV blocks of %d bytes: %w", loaded.Blocks, blockBytes, err)
	}
	w.board.update(func(st *cluster.WorkerStatus) {
		st.MemoryBytes, st.BlockBytes = int64(cmp.Or(loaded.LeastBlocks, loaded.Blocks))*blockBytes, blockBytes
	})
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

	w.kv, err = kv.Open(kv.Config{
		Worker: w.Name(), Namespace: w.cfg.Namespace, Store: w.cfg.Store, NIXL: w.cfg.NIXL(), Log: w.log,
		Model: loaded.Card.Digest, HashSeed: loaded.Card.HashSeed, Shape: w.info.KV, Blocks: loaded.Blocks, Memory: mem,
		Proof: w.proof,
	})
	if err != nil {
		return nil, err
	}
	w.agent.Store(w.kv.Agent())
	back.Push("close the NIXL agent", func(context.Context) error {
		err := w.kv.Close()
		inUse = err != nil
		return err
	})

	spec := w.cfg.Assignment.Engine
	e, err := engine.New(engine.Config{
		NumBlocks: loaded.Blocks, MaxSeqs: spec.MaxSeqs, MaxBatchTokens: spec.MaxBatchTokens,
		ITLTarget: time.Duration(spec.ITLTargetMS) * time.Millisecond, Speculative: spec.Speculative, Observe: func(r engine.StepReport) { w.meter().step(r) },
		MaxModelLen: spec.MaxModelLen, HashSeed: loaded.Card.HashSeed, Sink: w.events, Log: w.log,
	}, loaded.Backend)
	if err != nil {
		return nil, fmt.Errorf("start engine: %w", err)
	}
	w.engine.Store(e)
	// The metadata is there before anyone can learn this agent's name.
	if err := w.publishMetadata(ctx, w.drt.Load()); err != nil {
		return nil, err
	}
	return e, nil
}

func (w *Worker) publishMetadata(ctx context.Context, drt *runtime.DistributedRuntime) error {
	key := func(cluster.InstanceID) string { return cluster.NIXLMetadataKey(w.cfg.Namespace, w.kv.Name()) }
	if _, err := drt.PutOwned(ctx, key, func(cluster.InstanceID) []byte { return w.kv.Agent().Metadata() }); err != nil {
		return fmt.Errorf("publish NIXL metadata: %w", err)
	}
	return nil
}

// serve runs the engine and everything around it, in one role after the other.
func (w *Worker) serve(ctx context.Context, e *engine.Engine) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, running := errgroup.WithContext(running)
	w.workCtx = running
	engineCtx, stopEngine := context.WithCancelCause(context.WithoutCancel(ctx))
	g.Go(func() error { return w.engineEnded(running, e.Run(engineCtx)) })
	err := errTurned
	var t *term
	for errors.Is(err, errTurned) {
		if t != nil {
			if err = w.turn(running, t); err != nil {
				break
			}
		}
		if t, err = w.beginTerm(running); err == nil {
			w.setState(cluster.StateReady, "")
			err = w.obey(running)
		}
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
	t.end()
	w.unfollow()
	return err
}

// follow watches what the role needs to know of others.
func (w *Worker) follow(ctx context.Context, drt *runtime.DistributedRuntime) (err error) {
	switch w.Role() {
	case cluster.RoleDecode:
		if w.prefills, err = runtime.NewClient(ctx, drt, cluster.RolePrefill.Component(), cluster.EndpointPrefill); err != nil {
			return err
		}
		if w.others, err = runtime.NewClient(ctx, drt, cluster.RoleDecode.Component(), cluster.EndpointHandover); err != nil {
			return err
		}
		w.peers, err = w.kv.Follow(ctx)
	case cluster.RolePrefill:
		if w.peers, err = w.kv.Follow(ctx); err != nil {
			return err
		}
		w.peers.MeetAll(func(r cluster.Role) bool { return r != cluster.RolePrefill })
	}
	return err
}

// unfollow ends what follow began.
func (w *Worker) unfollow() {
	if w.prefills != nil {
		w.prefills.Close()
	}
	if w.others != nil {
		w.others.Close()
	}
	if w.peers != nil {
		w.peers.Close()
	}
	w.prefills, w.others, w.peers = nil, nil, nil
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
