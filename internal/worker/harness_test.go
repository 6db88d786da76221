package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

const (
	vocab     = 300
	blockSize = 16
	digest    = "sha256:test"
)

// world is a cluster of workers in one process over in-memory plumbing and the
// hash backend, whose output proves what was in the KV blocks.
type world struct {
	t     *testing.T
	c     *runtimetest.Cluster
	queue *events.MemoryQueue
	peers *local.Registry
	calls *runtime.Client // decode/generate, as a frontend has it

	mu       sync.Mutex
	settings Settings
	opts     mock.Options
	tcp      bool
	tune     func(*Worker) // changes each worker before it runs; nil for none
	// fenced says that a worker may end before a writer that it cannot stop, and leave
	// blocks in quarantine.
	fenced bool
}

// ackWait is how long a message may be silent. A worker that computes says in time that it does, also
// where the race detector slows all of them down.
func ackWait() time.Duration {
	if patience.RaceDetector {
		return 2 * time.Second
	}
	return 200 * time.Millisecond
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, c: runtimetest.New(t), queue: events.NewMemoryQueue(events.QueueConfig{AckWait: ackWait()}),
		peers:    local.NewRegistry(1),
		settings: Settings{Prefill: router.PrefillLimits{MaxLocalTokens: 0, MaxQueueDepth: 1000}, RemoteTimeout: patience.Soon},
		opts:     mock.Options{BlockSize: blockSize, VocabSize: vocab, MaxContext: 2048},
	}
	if testing.Verbose() {
		w.c.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	w.calls = runtimetest.Client(t, w.c.Runtime(t, "frontend"), "decode", cluster.EndpointGenerate)
	return w
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

func (w *world) putSettings(f func(*Settings)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.settings)
}

// quarantined is what the engine says whose only blocks in use are in quarantine.
var quarantined = regexp.MustCompile(`blocks leaked: {.*Active:0 .*Incoming:0 Outgoing:0 Quarantined:`)

// running is a worker that runs.
type running struct {
	*Worker
	cancel context.CancelCauseFunc
	queue  *events.MemoryQueue
	server requestplane.Server
	ended  chan error
	once   sync.Once
	err    error
}

// start runs a worker and waits until it is ready. When the test ends it is
// stopped and must have leaked no block.
func (w *world) start(name string, role cluster.Role, changes ...func(*Config)) *running {
	w.t.Helper()
	r := w.begin(name, role, changes...)
	r.waitState(w.t, cluster.StateReady)
	return r
}

// begin is start that does not wait.
func (w *world) begin(name string, role cluster.Role, changes ...func(*Config)) *running {
	cfg := w.c.Config(w.t, name)
	r := &running{queue: w.queue.Join(), server: cfg.Server, ended: make(chan error, 1)}
	wc := Config{
		Assignment: cluster.Assignment{Name: name, Role: role, Model: cluster.ModelSpec{Name: "mock"}, Node: "node-1", Device: "cpu:0", Generation: 1},
		Namespace:  cluster.DefaultNamespace, Node: "node-1",
		Store: w.c.Store, Bus: cfg.Bus, Queue: r.queue, Runtime: cfg, Metrics: metrics.NewRegistry(), Log: w.c.Log,
		NIXL: func() nixl.Config {
			c := nixl.Config{Key: nixltest.Key, Transports: []nixl.Transport{w.peers.Transport(), tcp.New(tcp.Options{})}}
			if w.tcp {
				c.Force = []string{"tcp"}
			}
			return c
		},
		Settings: func() Settings {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.settings
		},
		QueueDepth: func() int { return 0 },
		Load: func(context.Context, func(float64)) (*Loaded, error) {
			return &Loaded{
				Backend: mock.New(w.opts), Blocks: 256,
				Card:    cluster.ModelCard{DisplayName: "mock", Digest: digest, HashSeed: cluster.DefaultHashSeed, Files: []cluster.CardFile{{Name: "tokenizer.json"}}},
				Files:   map[string][]byte{"tokenizer.json": []byte("{}")},
				Release: func() {},
			}, nil
		},
	}
	for _, change := range changes {
		change(&wc)
	}
	r.Worker = New(wc)
	if w.tune != nil {
		w.tune(r.Worker)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
	w.t.Cleanup(func() {
		c := r.builtin()
		r.stop(errors.New("test over"))
		if c != nil {
			err := c.engine.Check(context.Background(), true)
			if err != nil && w.fenced && quarantined.MatchString(err.Error()) {
				err = nil
			}
			if err != nil {
				w.t.Errorf("%s after its end: %v", name, err)
			}
		}
	})
	return r
}

// plane is the KV data plane of a worker, nixl its agent.
func (r *running) plane() *kv.Plane       { return r.builtin().kv }
func (r *running) nixl() *nixl.Agent      { return r.plane().Agent() }
func (r *running) engine() *engine.Engine { return r.builtin().engine }

// sees are the workers of a role that a decode worker knows of.
func (r *running) sees(of cluster.Role) []cluster.Instance {
	endpoint := map[cluster.Role]string{
		cluster.RolePrefill: cluster.EndpointPrefill, cluster.RoleDecode: cluster.EndpointHandover, cluster.RoleEncode: cluster.EndpointGenerate,
	}[of]
	return r.term.Load().clients[of.Component()+"/"+endpoint].Instances()
}

// stop ends the worker and returns what Run returned.
func (r *running) stop(cause error) error {
	r.once.Do(func() {
		r.cancel(cause)
		select {
		case r.err = <-r.ended:
		case <-time.After(time.Minute):
			r.err = errors.New("the worker did not end")
		}
	})
	return r.err
}

func (r *running) waitState(t *testing.T, want cluster.State) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", r.Name(), want), func() bool { return r.Status().State == want })
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !within(patience.Soon, cond) {
		t.Fatalf("never: %s", what)
	}
}

// within looks again and again whether a condition holds, for a limited time.
func within(limit time.Duration, cond func() bool) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !cond() {
		select {
		case <-look.C:
		case <-late.C:
			return cond()
		}
	}
	return true
}

func prompt(r *rand.Rand, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(r.IntN(vocab))
	}
	return p
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func request(id string, tokens []uint32, n int) protocol.PreprocessedRequest {
	return protocol.PreprocessedRequest{RequestID: id, Model: "mock", ModelSum: digest, TokenIDs: tokens, Stop: protocol.StopConditions{MaxTokens: n}}
}

// result is what came back for one request.
type result struct {
	tokens []uint32
	timing *protocol.Timing
	usage  *protocol.Usage
	probs  protocol.Logprobs  // of the tokens
	prompt *protocol.Logprobs // of the prompt
	finish protocol.FinishReason
	moved  *protocol.Moved // where it goes on
	decode int64           // ns, of the last output
	err    error
}

var errNoWorker = errors.New("no such worker")

// generate sends a request to a decode worker, any one if inst is nil.
func (w *world) generate(ctx context.Context, worker string, req protocol.PreprocessedRequest) (r result) {
	var inst *cluster.Instance
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := w.calls.Wait(wait, 1); err != nil {
		return result{err: err}
	}
	if !within(patience.Soon/4, func() bool {
		for _, i := range w.calls.Instances() {
			if worker == "" || i.Worker == worker {
				inst = &i
			}
		}
		return inst != nil
	}) {
		return result{err: fmt.Errorf("%w: %q", errNoWorker, worker)}
	}
	s, err := w.calls.Call(ctx, *inst, req.RequestID, nil, req)
	if err != nil {
		return result{err: err}
	}
	defer s.Close()
	for {
		var o protocol.EngineOutput
		if err := s.Recv(ctx, &o); err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			return r
		}
		r.tokens = append(r.tokens, o.TokenIDs...)
		if o.Timing != nil {
			r.timing = o.Timing
		}
		if o.Logprobs != nil {
			r.probs.Append(o.Logprobs)
		}
		if o.PromptLogprobs != nil {
			r.prompt = o.PromptLogprobs
		}
		if o.Usage != nil {
			r.usage = o.Usage
		}
		r.finish, r.moved, r.decode = o.Finish, o.Moved, o.DecodeNS
	}
}

// check compares a result with what the prompt must give.
func check(t *testing.T, r result, tokens []uint32, n int) {
	t.Helper()
	want := mock.Continue(tokens, n, vocab)
	if r.err != nil || fmt.Sprint(r.tokens) != fmt.Sprint(want) || r.finish != protocol.FinishLength {
		t.Errorf("prompt of %d: got %v %q %v (%+v), want %v", len(tokens), r.tokens, r.finish, r.err, r.timing, want)
	}
}

// builtin is the core of a worker with the built-in engine, nil before it is loaded.
func (w *Worker) builtin() *builtin {
	c := w.core.Load()
	if c == nil {
		return nil
	}
	b, _ := c.core.(*builtin)
	return b
}
