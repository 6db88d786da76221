package kvfeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Config holds the dependencies of a feed.
type Config struct {
	Runtime *runtime.DistributedRuntime
	// Index gets the blocks. If it is nil, the feed follows the workers without them.
	Index *kvindex.Index
	Log   *slog.Logger
	// Came and Gone are called when a worker enters and leaves discovery, Status in between
	// with each status that it publishes: one call at a time. They must not call the feed.
	Came   func(id cluster.InstanceID, worker string)
	Status func(cluster.WorkerStatus)
	Gone   func(cluster.InstanceID)
}

// Feed applies the KV events of all workers of a namespace to an index.
type Feed struct {
	cfg     Config
	log     *slog.Logger
	clients []*runtime.Client // the workers' endpoint, by role
	subs    []events.Subscription

	mu      sync.Mutex
	workers map[cluster.InstanceID]*followed
}

// followed is a worker that is in discovery.
type followed struct {
	tracker
	client *runtime.Client
	at     cluster.Instance
}

const (
	// lookEvery is how often the feed looks which workers must be asked.
	lookEvery = 50 * time.Millisecond
	// answerIn bounds the wait for an answer.
	answerIn = 5 * time.Second
	// askedMost bounds the workers that are asked at the same time, as in Dynamo.
	askedMost = 16
	// blocksMost bounds the blocks of an answer: a pool of 16 TB with blocks of 1 MB.
	blocksMost = 1 << 24
)

var errTooLarge = errors.New("the answer is too large")

// New starts following the workers. Run or Close must follow.
func New(ctx context.Context, cfg Config) (*Feed, error) {
	f := &Feed{cfg: cfg, log: cfg.Log, workers: map[cluster.InstanceID]*followed{}}
	for _, role := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		c, err := runtime.NewClient(ctx, cfg.Runtime, role.Component(), cluster.EndpointKVEvents)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("follow the KV events of %s workers: %w", role, err)
		}
		f.clients = append(f.clients, c)
	}
	bus := cfg.Runtime.Bus()
	if bus == nil {
		return f, nil // workers are asked
	}
	topics := map[string]func(events.Event){cluster.TopicWorkerStatus: f.onStatus}
	if cfg.Index != nil {
		topics[cluster.TopicKVEvents], topics[cluster.TopicKVPositions] = f.onEvent, f.onPosition
	}
	for topic, h := range topics {
		sub, err := bus.Subscribe(ctx, events.Subject(cfg.Runtime.Namespace(), "*", topic), h)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("subscribe to %s: %w", topic, err)
		}
		f.subs = append(f.subs, sub)
	}
	return f, nil
}

// Close ends what New has started. It must not be called while Run runs.
func (f *Feed) Close() {
	for _, s := range f.subs {
		_ = s.Close() // ended with the bus, if it fails
	}
	for _, c := range f.clients {
		c.Close()
	}
}

// Run keeps the index true until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	places := make(chan struct{}, askedMost)
	f.follow(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.clients[0].Changed():
			f.follow(time.Now())
		case <-f.clients[1].Changed():
			f.follow(time.Now())
		case now := <-tick.C:
			for _, w := range f.due(now, askedMost-len(places)) {
				places <- struct{}{}
				wg.Go(func() {
					defer func() { <-places }()
					f.ask(ctx, w.followed, w.request)
				})
			}
		}
	}
}

// follow brings the workers in line with discovery.
func (f *Feed) follow(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	here := map[cluster.InstanceID]bool{}
	for _, c := range f.clients {
		for _, inst := range c.All() {
			here[inst.InstanceID] = true
			if w := f.workers[inst.InstanceID]; w == nil {
				f.workers[inst.InstanceID] = &followed{
					tracker: tracker{id: inst.InstanceID, name: inst.Worker, index: f.cfg.Index, heard: now}, client: c, at: inst,
				}
				f.cfg.Came(inst.InstanceID, inst.Worker)
			} else {
				w.at, w.client = inst, c
			}
		}
	}
	for id := range f.workers {
		if !here[id] {
			delete(f.workers, id)
			if f.cfg.Index != nil {
				f.cfg.Index.Drop(id)
			}
			f.cfg.Gone(id)
		}
	}
}

// question is a worker with what it is to be asked.
type question struct {
	*followed
	request protocol.KVEventsRequest
}

// due returns at most n workers that must be asked, those first that are out of date for
// the longest time.
func (f *Feed) due(now time.Time, n int) (out []question) {
	if f.cfg.Index == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	silent := silentFor
	if bus := f.cfg.Runtime.Bus(); bus == nil || !bus.Connected() {
		silent = unheardFor
	}
	var all []*followed
	for _, w := range f.workers {
		if w.due(now, silent) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *followed) int { return cmp.Or(a.missing.Compare(b.missing), cmp.Compare(a.id, b.id)) })
	for _, w := range all[:min(len(all), n)] {
		out = append(out, question{w, w.tracker.ask()})
	}
	return out
}

// ask asks a worker and applies its answer.
func (f *Feed) ask(ctx context.Context, w *followed, r protocol.KVEventsRequest) {
	f.mu.Lock()
	client, at := w.client, w.at
	f.mu.Unlock()
	pages, err := fetch(ctx, client, at, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.workers[w.id] != w: // it has left
	case err != nil:
		w.failed(time.Now())
		f.log.Debug("KV events not fetched", "worker", w.name, "error", err)
	default:
		w.answer(pages, time.Now())
	}
}

func fetch(ctx context.Context, c *runtime.Client, at cluster.Instance, r protocol.KVEventsRequest) (pages []protocol.KVEventsPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	stream, err := c.Call(ctx, at, fmt.Sprintf("kv-events-%016x", rand.Uint64()), nil, r)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	for blocks := 0; blocks <= blocksMost; {
		var p protocol.KVEventsPage
		switch err := stream.Recv(ctx, &p); {
		case errors.Is(err, io.EOF):
			return pages, nil
		case err != nil:
			return nil, err
		}
		pages = append(pages, p)
		blocks += 1 + len(p.Blocks)
	}
	return nil, errTooLarge
}

func (f *Feed) onEvent(e events.Event) {
	var ev cluster.KVEvent
	if e.Decode(&ev) == nil {
		f.with(ev.WorkerID, func(w *followed) { w.event(ev, time.Now()) })
	}
}

func (f *Feed) onPosition(e events.Event) {
	var p cluster.KVPosition
	if e.Decode(&p) == nil {
		f.with(p.WorkerID, func(w *followed) { w.position(p.Epoch, p.Next, time.Now()) })
	}
}

func (f *Feed) onStatus(e events.Event) {
	var st cluster.WorkerStatus
	if e.Decode(&st) != nil {
		return
	}
	f.with(st.InstanceID, func(w *followed) {
		w.position(st.KVEpoch, st.KVNext, time.Now())
		f.cfg.Status(st)
	})
}

// with calls do for a worker that is in discovery. What others publish waits until they
// are: they are asked for all then.
func (f *Feed) with(id cluster.InstanceID, do func(*followed)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.workers[id]; w != nil {
		do(w)
	}
}

// State is what a feed knows of one worker.
type State struct {
	Worker cluster.InstanceID
	Name   string
	Epoch  uint64
	Next   uint64 // id of the next event
	// OutOfDate is since when events are known to be missing; zero if none are.
	OutOfDate time.Time
	Gaps      uint64 // events that did not come
	Answers   uint64 // questions that repaired gaps, or told a worker first
	Dumps     uint64 // answers with all blocks
	Resets    uint64 // times that all blocks were forgotten
}

// States returns the state of every worker, sorted by id.
func (f *Feed) States() []State {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []State
	for _, w := range f.workers {
		out = append(out, State{w.id, w.name, w.epoch, w.next, w.missing, w.gaps, w.answers, w.dumps, w.resets})
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Compare(a.Worker, b.Worker) })
	return out
}
