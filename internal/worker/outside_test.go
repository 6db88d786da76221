package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker/served"
)

// otherEngine is a server that answers with one token and tells how busy it is.
type otherEngine struct {
	external.Engine
	mu      sync.Mutex
	running int
	hold    chan struct{} // answers wait until it is closed
}

func (e *otherEngine) says(running int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = running
}

func (e *otherEngine) Probe(context.Context) (external.Facts, error) {
	return external.Facts{Pair: "a"}, nil
}
func (e *otherEngine) Health(context.Context) error { return nil }
func (e *otherEngine) Exchange() external.Exchange  { return external.ExchangeSequential }
func (e *otherEngine) Load(context.Context) (external.Load, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, none := e.running, 0
	return external.Load{Running: &n, Waiting: &none}, nil
}

func (e *otherEngine) Generate(ctx context.Context, _ *external.Request, emit func(protocol.EngineOutput) error) error {
	select {
	case <-e.hold:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return emit(protocol.EngineOutput{TokenIDs: []uint32{7}, Finish: protocol.FinishStop})
}

// cacheEvents tells a sink what a server has.
type cacheEvents struct{ sink engine.KVSink }

func (e *cacheEvents) Tell(sink engine.KVSink) { e.sink = sink }

func (e *cacheEvents) Run(ctx context.Context) {
	e.sink.Stored(nil, 0, []cluster.KVStoredBlock{{BlockHash: 5, TokensHash: 6}})
	<-ctx.Done()
}

func (e *cacheEvents) Forget() { e.sink.Cleared(1) }

func (e *cacheEvents) Status() cluster.ServerEvents { return cluster.ServerEvents{Publishers: 1} }

func (e *cacheEvents) Resident(_ context.Context, at func()) ([]uint64, error) {
	at()
	return []uint64{5}, nil
}

func outsideWorker(e *otherEngine, released *atomic.Int32, exited chan struct{}) func(*Config) {
	return func(c *Config) {
		c.Load = func(context.Context, func(float64)) (*Loaded, error) {
			return &Loaded{
				Card: cluster.ModelCard{DisplayName: "mock", Digest: digest, HashSeed: cluster.DefaultHashSeed, ContextLength: 100},
				Server: &served.Config{
					Backend: cluster.BackendVLLM, Engine: e, Facts: external.Facts{Pair: "a", KVBlocks: 80, BlockSize: 16, MaxModelLen: 2048, TensorParallel: 2},
					Model: "m", BlockSize: 64, Events: &cacheEvents{},
					Exited: exited, Exit: func() error { return errors.New("exit status 1: out of memory") },
				},
				Release: func() { released.Add(1) },
			}, nil
		}
	}
}

// A worker with another engine lives like any other: it is found, told of, drained, and turned.
func TestOutsideWorker(t *testing.T) {
	w := newWorld(t)
	e, released := &otherEngine{hold: make(chan struct{})}, &atomic.Int32{}
	r := w.start("worker-1", cluster.RoleDecode, outsideWorker(e, released, nil))
	card, _, err := store.GetJSON[cluster.ModelCard](t.Context(), w.c.Store, cluster.CardKey(cluster.DefaultNamespace, "decode", cluster.EndpointGenerate, r.Status().InstanceID))
	if rt := card.Runtime; err != nil || rt.Backend != cluster.BackendVLLM || rt.Pair != "a" || rt.Exchange != "sequential" || rt.TotalKVBlocks != 20 || rt.TensorParallel != 2 || card.ContextLength != 2048 || card.BlockSize != 64 {
		t.Errorf("%+v, %v", card, err)
	}
	eventually(t, "its cache is told", func() bool { return r.Status().KVNext == 1 })
	if s := r.Status().ServerStatus; s == nil || s.Backend != cluster.BackendVLLM || s.Pair != "a" || s.Events == nil || s.Events.Publishers != 1 {
		t.Errorf("%+v", s)
	}

	done := make(chan result, 1)
	req := protocol.PreprocessedRequest{RequestID: "a", TokenIDs: []uint32{1, 2}, Stop: protocol.StopConditions{MaxTokens: 4}}
	go func() { done <- w.generate(t.Context(), "worker-1", req) }()
	eventually(t, "the request is at the server", func() bool { return r.Status().Stats.Running == 1 })
	e.says(1)
	if err := r.Drain(t.Context(), time.Time{}, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drain waits for the answer", func() bool { d := r.Status().Drain; return d != nil && d.Step == cluster.DrainSequences && d.Left == 1 })
	close(e.hold)
	if got := <-done; len(got.tokens) != 1 || got.err != nil {
		t.Errorf("%+v", got)
	}
	eventually(t, "the drain waits for the server", func() bool {
		d := r.Status().Drain
		return d != nil && d.Step == cluster.DrainOutgoing && d.Outgoing == 1
	})
	select {
	case err := <-r.ended:
		t.Fatalf("it ended although its server runs a request: %v", err)
	default:
	}
	e.says(0)
	if err := <-r.ended; !errors.Is(err, ErrDrained) {
		t.Errorf("%v", err)
	}
	r.ended <- ErrDrained
	if released.Load() != 1 {
		t.Errorf("the server was released %d times", released.Load())
	}
}

func TestOutsideWorkerTurns(t *testing.T) {
	w := newWorld(t)
	e, released := &otherEngine{hold: make(chan struct{})}, &atomic.Int32{}
	r := w.start("worker-1", cluster.RoleDecode, outsideWorker(e, released, nil))
	before := r.Status().InstanceID
	next := r.Assignment()
	next.Role, next.Generation = cluster.RolePrefill, 2
	if err := r.Turn(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it prefills", func() bool { st := r.Status(); return st.Role == cluster.RolePrefill && st.State == cluster.StateReady })
	if r.Status().InstanceID == before || released.Load() != 0 {
		t.Errorf("%+v", r.Status())
	}
}

func TestOutsideWorkerWhoseServerExits(t *testing.T) {
	w := newWorld(t)
	e, released, exited := &otherEngine{hold: make(chan struct{})}, &atomic.Int32{}, make(chan struct{})
	r := w.start("worker-1", cluster.RoleDecode, outsideWorker(e, released, exited))
	done := make(chan result, 1)
	go func() {
		done <- w.generate(t.Context(), "worker-1", protocol.PreprocessedRequest{RequestID: "a", TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 4}})
	}()
	eventually(t, "the request is at the server", func() bool { return r.Status().Stats.Running == 1 })
	close(exited)
	err := <-r.ended
	r.ended <- err
	if err == nil || err.Error() != "exit status 1: out of memory" || released.Load() != 1 {
		t.Errorf("%v, released %d times", err, released.Load())
	}
	if got := <-done; got.err == nil {
		t.Errorf("%+v", got)
	}
	if n := r.Status().Stats.Running; n != 0 {
		t.Errorf("%d requests are left", n)
	}
}
