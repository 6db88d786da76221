package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cli/logs"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/controller"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// fakeAgent plays a dynamod as far as dynctl can see: node, statuses, instances, logs
// and a list of models, over the real store, controller and request plane. Nothing
// computes.
type fakeAgent struct {
	cfg    fakeConfig
	store  *store.Etcd
	drt    *runtime.DistributedRuntime
	server requestplane.Server
	client requestplane.Client
	http   *http.Server
	node   cluster.Node
	key    handshake.Key

	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	runners  map[string]*fakeWorker
	failures map[string]int // by worker
}

type fakeConfig struct {
	Store     *store.Etcd
	Bus       events.Bus
	Namespace string
	Name      string
	// SecretFile holds the secret of the cluster, and is made where it is not there.
	SecretFile string
	// NodeID and Incarnation are made up when empty.
	NodeID, Incarnation string
	Roles               []cluster.Role
	Devices             []string                       // default cpu:0
	Port                int                            // of the frontend; -1 for none
	Settings            map[string]cluster.NodeSetting // of its own configuration
	// Fail gives workers a reason to fail; FailTimes limits how often each does, 0 is always.
	Fail      map[string]string
	FailTimes int
	Backoff   time.Duration // between failures
	// Load is the time that workers load; Sequences the number that each runs when a drain
	// begins, one of which ends every Step.
	Load      time.Duration
	Sequences int
	Step      time.Duration
	// Hold keeps a drain at its sequences while it is true.
	Hold *atomic.Bool
	// Pace, if set, is called with each state of a worker that loads or drains, which goes
	// on when it returns: a watch may miss states that pass at once.
	Pace func(cluster.WorkerStatus)
	// NoSleep gives workers a reason to decline to sleep.
	NoSleep map[string]string
	// Paths holds the paths that workers report, by worker; others report none.
	Paths map[string][]cluster.Path
	// Decisions holds the decisions that its frontend reports, oldest first; nil: it reports none.
	Decisions []cluster.RouterDecision
	// Index holds the prefix index that its frontend reports; nil: it reports none.
	Index    *cluster.KVIndex
	Recorded *cluster.RecordedLoad
	// Caches holds the number of blocks that workers report as forgotten; negative: it fails.
	Caches map[string]int
	// Mute names workers that do not answer.
	Mute map[string]bool
	// Chat answers requests for chats; nil: they are answered as lists of models. MaxBatchTokens is
	// what workers tell.
	Chat           http.HandlerFunc
	MaxBatchTokens int
	// Logs holds the logs of workers and the agent ("").
	Logs map[string]string
}

func startAgent(ctx context.Context, cfg fakeConfig) (_ *fakeAgent, err error) {
	if len(cfg.Devices) == 0 {
		cfg.Devices = []string{"cpu:0"}
	}
	if cfg.Step == 0 {
		cfg.Step = 5 * time.Millisecond
	}
	a := &fakeAgent{cfg: cfg, store: cfg.Store, runners: map[string]*fakeWorker{}, failures: map[string]int{}}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.cancel = cancel
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	log := slog.New(slog.DiscardHandler)
	secret, err := credentials.Create(cfg.SecretFile, credentials.New())
	if err != nil {
		return a, err
	}
	key := handshake.NewKey(secret.Key(requestplane.KeyPurpose))
	srv, err := requestplane.ListenTCP(requestplane.ServerConfig{Addr: "127.0.0.1:0", Key: key, Log: log})
	if err != nil {
		return a, err
	}
	a.key = key
	a.server, a.client = srv, requestplane.NewClient(requestplane.ClientConfig{Key: key, Log: log})
	host, _ := os.Hostname()
	id := cfg.NodeID
	if id == "" {
		id = fmt.Sprintf("%s-%d", cfg.Name, time.Now().UnixNano())
	}
	if a.drt, err = runtime.New(ctx, a.runtime(cfg.Name, id)); err != nil {
		return a, err
	}
	a.node = cluster.Node{
		Settings: cfg.Settings,
		ID:       id, Name: cfg.Name, Namespace: cfg.Namespace, Host: host, PID: os.Getpid(), InstanceID: a.drt.ID(), Version: "v0.0.0-test", StartedAt: time.Now(),
		Roles: cfg.Roles, RequestPlane: srv.Addr(), EmbeddedEtcd: cfg.Port >= 0,
	}
	for _, d := range cfg.Devices {
		a.node.Devices = append(a.node.Devices, cluster.Device{ID: d, Name: d, Cores: 2})
	}
	if cfg.Port >= 0 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", cfg.Port))
		if err != nil {
			return a, fmt.Errorf("frontend 127.0.0.1:%d: port is in use", cfg.Port)
		}
		a.http = &http.Server{Handler: http.HandlerFunc(a.models), ReadHeaderTimeout: time.Second}
		a.node.FrontendURL = "http://" + l.Addr().String()
		a.wg.Go(func() { _ = a.http.Serve(l) })
	}
	if _, err := a.drt.Serve(ctx, cluster.ComponentAgent, cluster.EndpointLogs, a.logs); err != nil {
		return a, err
	}
	if cfg.Decisions != nil {
		if _, err := a.drt.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointDecisions, a.decisions); err != nil {
			return a, err
		}
	}
	if cfg.Recorded != nil {
		if _, err := a.drt.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointLoad, func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
			return send(*cfg.Recorded)
		}); err != nil {
			return a, err
		}
	}
	if cfg.Index != nil {
		if _, err := a.drt.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointKVIndex, a.index); err != nil {
			return a, err
		}
	}
	body, _ := json.Marshal(a.node)
	if _, err := a.drt.PutOwned(ctx, func(cluster.InstanceID) string { return cluster.NodeKey(id) }, func(cluster.InstanceID) []byte { return body }); err != nil {
		return a, err
	}
	a.wg.Go(func() {
		_ = controller.New(controller.Config{Store: a.store, Namespace: cfg.Namespace, Node: cfg.Name, Elect: a.drt.Elect, Log: log}).Run(run)
	})
	watch, err := store.WatchPrefix(run, a.store, cluster.AssignmentPrefix(cfg.Namespace), store.DecodeJSON[cluster.Assignment], log)
	if err != nil {
		return a, err
	}
	a.wg.Go(func() { defer watch.Close(); a.follow(run, watch) })
	return a, nil
}

func (a *fakeAgent) runtime(worker, node string) runtime.Config {
	return runtime.Config{
		Store: a.store, Server: a.server, Client: a.client, Bus: a.cfg.Bus, Namespace: a.cfg.Namespace, LeaseTTL: 10 * time.Second,
		Worker: worker, Node: node, Incarnation: a.cfg.Incarnation, Log: slog.New(slog.DiscardHandler),
	}
}

// close stops everything and takes the node out of the cluster.
func (a *fakeAgent) close() {
	a.cancel()
	if a.http != nil {
		_ = a.http.Close()
	}
	a.wg.Wait()
	// What is left of a node would be there for the next test.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if a.server != nil {
		_ = a.server.Close() // ends who follows a log, which never ends by itself
		_ = a.client.Close()
	}
	if a.drt != nil {
		_ = a.drt.Close(ctx)
	}
}

func (a *fakeAgent) follow(ctx context.Context, watch *store.Prefix[cluster.Assignment]) {
	for {
		mine := map[string]bool{}
		for _, as := range watch.Snapshot() {
			if as.Node == a.node.ID {
				mine[as.Name] = true
				a.assign(ctx, as)
			}
		}
		a.mu.Lock()
		for name, r := range a.runners {
			if !mine[name] {
				r.stop()
				delete(a.runners, name)
			}
		}
		a.mu.Unlock()
		select {
		case <-watch.Changed():
		case <-ctx.Done():
			return
		}
	}
}

func (a *fakeAgent) assign(ctx context.Context, as cluster.Assignment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.runners[as.Name]
	if r == nil {
		wctx, stop := context.WithCancel(ctx)
		r = &fakeWorker{a: a, name: as.Name, news: make(chan cluster.Assignment, 1), stop: stop}
		a.runners[as.Name] = r
		a.wg.Go(func() { r.run(wctx) })
	}
	for {
		select {
		case r.news <- as:
			return
		case <-r.news:
		}
	}
}

// fails reports whether a worker fails once more.
func (a *fakeAgent) fails(worker string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures[worker]++
	return a.cfg.FailTimes == 0 || a.failures[worker] <= a.cfg.FailTimes
}

// models lists what ready decode workers serve.
func (a *fakeAgent) models(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Chat != nil && r.Method == http.MethodPost {
		a.cfg.Chat(w, r)
		return
	}
	type item struct {
		ID string `json:"id"`
	}
	list := struct {
		Data []item `json:"data"`
	}{}
	kvs, _, err := a.store.List(r.Context(), cluster.StatusPrefix(a.cfg.Namespace))
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, kv := range kvs {
		st, err := store.DecodeJSON[cluster.WorkerStatus](kv)
		if err == nil && st.State.Serving() && st.Role == cluster.RoleDecode && !slices.Contains(list.Data, item{st.Model}) {
			list.Data = append(list.Data, item{st.Model})
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (a *fakeAgent) logs(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.LogRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	text, ok := a.cfg.Logs[req.Worker]
	if !ok {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "no log of " + req.Worker + " on this node"}
	}
	b := []byte(text)
	if req.Tail > 0 {
		b = logs.LastLines(b, req.Tail)
	}
	if err := send(protocol.LogChunk{Data: b}); err != nil || !req.Follow {
		return err
	}
	// In pieces, to show that lines are put together.
	for _, piece := range []string{"more ", "of " + req.Worker, "\n"} {
		if err := send(protocol.LogChunk{Data: []byte(piece)}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return context.Cause(ctx) // as a process that dies: nobody hears a last word
}

func (a *fakeAgent) decisions(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.DecisionsRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, d := range slices.Backward(a.cfg.Decisions) {
		id, _, _ := strings.Cut(d.RequestID, "~")
		if told[id] = told[id] || req.Limit == 0 || len(told) < req.Limit; !told[id] || !strings.HasPrefix(id, req.RequestID) {
			continue
		}
		if err := send(d); err != nil {
			return err
		}
	}
	return nil
}

// index tells overlaps only if it is asked about a text.
func (a *fakeAgent) index(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.KVIndexRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	x := *a.cfg.Index
	if x.Workers = slices.Clone(x.Workers); req.Text == "" {
		x.PromptTokens, x.PromptBlocks, x.BlockSize = 0, 0, 0
		for i := range x.Workers {
			x.Workers[i].Overlap = 0
		}
	}
	if req.Model != "" && req.Model != "llama" {
		return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: "model " + req.Model + " is not served"}
	}
	return send(x)
}

// fakeWorker follows one assignment.
type fakeWorker struct {
	a    *fakeAgent
	name string
	news chan cluster.Assignment // capacity 1, the newest
	stop context.CancelFunc

	mu sync.Mutex
	st cluster.WorkerStatus
}

var errNews = errors.New("the assignment changed")

// run is the life of a worker; an assignment that changes interrupts it.
func (w *fakeWorker) run(ctx context.Context) {
	var as cluster.Assignment
	var drt *runtime.DistributedRuntime
	restarts := 0
	end := func() {
		if drt != nil {
			c, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			_ = drt.Close(c)
			drt = nil
		}
	}
	defer end()
	select {
	case as = <-w.news:
	case <-ctx.Done():
		return
	}
	w.st = cluster.WorkerStatus{Name: as.Name, Role: as.Role, Model: as.Model.Name, Node: w.a.node.ID, Device: as.Device, State: cluster.StatePending}
	for {
		wait := time.Duration(0) // 0 waits for news
		switch {
		case as.Desire == cluster.DesireRun && drt != nil && w.st.Generation == as.Generation && w.st.State == cluster.StateDraining:
			w.publish(ctx, drt, func(st *cluster.WorkerStatus) { st.State, st.Drain = cluster.StateReady, nil })
		case as.Desire == cluster.DesireRun && drt != nil && w.st.Generation == as.Generation:
		case as.Desire == cluster.DesireRun:
			end()
			if why := w.a.cfg.Fail[as.Name]; why != "" && w.a.fails(as.Name) {
				restarts++
				wait = max(w.a.cfg.Backoff, 50*time.Millisecond)
				w.publish(ctx, nil, func(st *cluster.WorkerStatus) {
					st.State, st.Reason, st.Restarts, st.RetryAt, st.Generation = cluster.StateFailed, why, restarts, time.Now().Add(wait), as.Generation
				})
				break
			}
			drt = w.start(ctx, as, restarts)
		case as.SleepLevel() > 0 && w.a.cfg.NoSleep[as.Name] != "":
			w.publish(ctx, drt, func(st *cluster.WorkerStatus) {
				st.Declined = cluster.Declined{Generation: as.Generation, Why: w.a.cfg.NoSleep[as.Name]}
			})
		default:
			if w.st.State != cluster.StateDrained && w.st.State != cluster.StateStopped && w.st.State != cluster.StateSleeping {
				if w.drain(ctx, drt, as) == errNews {
					as = w.newest(as)
					continue
				}
			}
			end()
			state := cluster.StateDrained
			if as.Desire == cluster.DesireRemove {
				state = cluster.StateStopped
			}
			w.publish(ctx, nil, func(st *cluster.WorkerStatus) {
				st.State, st.Generation, st.InstanceID = state, as.Generation, 0
				if st.Sleep, st.Reason = as.SleepLevel(), ""; st.Sleep > 0 {
					st.State, st.Reason = cluster.StateSleeping, fmt.Sprintf("level %d", st.Sleep)
				}
				if st.Drain == nil {
					st.Drain = &cluster.DrainStatus{StartedAt: time.Now()}
				}
				st.Drain.Step, st.Drain.EndedAt, st.Drain.Safe, st.Drain.Left, st.Drain.Open = cluster.DrainLease, time.Now(), true, 0, nil
			})
		}
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}
		for same := true; same; {
			select {
			case <-ctx.Done():
				c, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				_ = w.a.store.Delete(c, cluster.StatusKey(w.a.cfg.Namespace, w.name))
				cancel()
				return
			case <-again:
				same = false
			case n := <-w.news:
				same = n == as
				as = n
			}
		}
	}
}

func (w *fakeWorker) newest(as cluster.Assignment) cluster.Assignment {
	select {
	case n := <-w.news:
		return n
	default:
		return as
	}
}

// start goes from loading to ready.
func (w *fakeWorker) start(ctx context.Context, as cluster.Assignment, restarts int) *runtime.DistributedRuntime {
	drt, err := runtime.New(ctx, w.a.runtime(as.Name, w.a.node.ID))
	if err != nil {
		return nil
	}
	w.publish(ctx, drt, func(st *cluster.WorkerStatus) {
		*st = cluster.WorkerStatus{
			Name: as.Name, Role: as.Role, Model: as.Model.Name, Weights: as.Model.Quantize, Node: w.a.node.ID, Device: as.Device, State: cluster.StateLoading,
			Progress: 0.5, InstanceID: drt.ID(), StartedAt: time.Now(), Generation: as.Generation, Restarts: restarts, LeaseTTLMS: 10000,
		}
	})
	w.pace()
	if w.a.cfg.Load > 0 {
		select {
		case <-time.After(w.a.cfg.Load):
		case <-ctx.Done():
		}
	}
	_, _ = drt.Serve(ctx, as.Role.Component(), cluster.EndpointStats, func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		if w.a.cfg.Mute[as.Name] {
			return errors.New("mute")
		}
		w.mu.Lock()
		st := w.st
		if st.Drain != nil {
			d := *st.Drain
			st.Drain = &d
		}
		w.mu.Unlock()
		st.UpdatedAt = time.Now()
		return send(st)
	})
	if paths, ok := w.a.cfg.Paths[as.Name]; ok {
		_, _ = drt.Serve(ctx, as.Role.Component(), cluster.EndpointPaths, func(_ context.Context, r *requestplane.Request, send func(any) error) error {
			var req protocol.PathsRequest
			if err := r.Decode(&req); err != nil {
				return err
			}
			for _, p := range paths {
				if req.Peer != "" && p.To != req.Peer {
					continue
				}
				if err := send(p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if n, ok := w.a.cfg.Caches[as.Name]; ok {
		_, _ = drt.Serve(ctx, as.Role.Component(), cluster.EndpointClearKV, func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
			if n < 0 {
				return &requestplane.RemoteError{Kind: requestplane.KindInternal, Message: "the engine failed"}
			}
			return send(protocol.ClearedKV{Blocks: n})
		})
	}
	w.publish(ctx, drt, func(st *cluster.WorkerStatus) {
		st.State, st.Progress, st.TensorParallel = cluster.StateReady, 1, max(as.Engine.TensorParallel, 1)
		if as.Engine.Backend == cluster.BackendVLLM {
			st.ServerStatus = &cluster.ServerStatus{Backend: as.Engine.Backend, URL: as.Engine.Server.URL, Adapters: []string{"sql", "tuned"}}
		}
		st.Stats = cluster.WorkerStats{Running: w.a.cfg.Sequences, MaxSeqs: 8, BlockSize: 64, KVTotal: 4096, MaxBatchTokens: w.a.cfg.MaxBatchTokens, KVActive: 17 * w.a.cfg.Sequences}
		if !as.Role.HoldsKV() {
			st.Stats = cluster.WorkerStats{Running: w.a.cfg.Sequences}
		}
	})
	return drt
}

// drain goes through the steps of a drain. It ends early, with errNews, when the
// assignment changes.
func (w *fakeWorker) drain(ctx context.Context, drt *runtime.DistributedRuntime, as cluster.Assignment) error {
	n := w.st.Stats.Running
	w.publish(ctx, drt, func(st *cluster.WorkerStatus) {
		st.State, st.Reason = cluster.StateDraining, ""
		st.Drain = &cluster.DrainStatus{Step: cluster.DrainDiscovery, StartedAt: time.Now(), Deadline: as.DrainDeadline, Routers: 2, Acknowledged: 1, Unacknowledged: []string{as.Node}, Sequences: n, Left: n}
	})
	for _, step := range cluster.DrainSteps {
		for {
			w.publish(ctx, drt, func(st *cluster.WorkerStatus) {
				d := *st.Drain
				d.Step, d.Finished = step, d.Sequences-d.Left-d.CutOff
				if step != cluster.DrainDiscovery {
					d.Acknowledged, d.Unacknowledged = 2, nil
				}
				d.Open = nil
				for i := range d.Left {
					d.Open = append(d.Open, cluster.OpenSequence{RequestID: fmt.Sprintf("r-%d", i+1), OutTokens: 1204, AgeMS: 128000, Why: "no room elsewhere"})
				}
				st.Drain, st.Stats.Running = &d, d.Left
			})
			w.pace()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(w.a.cfg.Step):
			}
			select {
			case n := <-w.news:
				if n != as {
					select {
					case w.news <- n:
					default: // there is a newer one
					}
					return errNews
				}
			default:
			}
			hold := w.a.cfg.Hold != nil && w.a.cfg.Hold.Load() && !as.DrainForce
			if step != cluster.DrainSequences || w.st.Drain.Left == 0 && !hold {
				break
			}
			if as.DrainForce {
				w.mu.Lock()
				w.st.Drain.CutOff, w.st.Drain.Left = w.st.Drain.Left, 0
				w.mu.Unlock()
				break
			}
			if !hold {
				w.mu.Lock()
				w.st.Drain.Left--
				w.mu.Unlock()
			}
		}
	}
	return nil
}

func (w *fakeWorker) pace() {
	if w.a.cfg.Pace == nil {
		return
	}
	w.mu.Lock()
	st := w.st
	w.mu.Unlock()
	w.a.cfg.Pace(st)
}

func (w *fakeWorker) publish(ctx context.Context, drt *runtime.DistributedRuntime, change func(*cluster.WorkerStatus)) {
	w.mu.Lock()
	change(&w.st)
	w.st.UpdatedAt = time.Now()
	st := w.st
	w.mu.Unlock()
	lease := w.a.drt.ID()
	if drt != nil {
		lease = drt.ID()
	}
	_, _ = store.PutJSON(ctx, w.a.store, cluster.StatusKey(w.a.cfg.Namespace, st.Name), st, store.WithLease(lease))
}
