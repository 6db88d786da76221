package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

// hops sends first hops to prefill workers, as a frontend does.
type hops struct {
	w       *world
	prefill *runtime.Client // prefill/generate
}

func (w *world) hops() *hops {
	return &hops{w, runtimetest.Client(w.t, w.c.Runtime(w.t, "frontend-2"), "prefill", cluster.EndpointGenerate)}
}

func (h *hops) instance(worker string) cluster.Instance {
	h.w.t.Helper()
	var found cluster.Instance
	eventually(h.w.t, worker+" is found", func() bool {
		for _, i := range h.prefill.Instances() {
			if i.Worker == worker {
				found = i
				return true
			}
		}
		return false
	})
	return found
}

// call sends a request to a prefill worker; the stream is closed when the test ends.
func (h *hops) call(ctx context.Context, worker string, req protocol.PreprocessedRequest, room *protocol.BootstrapInfo, deadline time.Duration) requestplane.Stream {
	h.w.t.Helper()
	req.Disagg.Strategy, req.Disagg.Bootstrap, req.Disagg.Deadline = protocol.StrategyPrefillFirst, room, time.Now().Add(deadline)
	s, err := h.prefill.Call(ctx, h.instance(worker), req.RequestID, nil, req)
	if err != nil {
		h.w.t.Fatal(err)
	}
	h.w.t.Cleanup(s.Close)
	return s
}

// hold has a prefill worker compute a prompt and returns the request for the decode
// worker.
func (h *hops) hold(worker string, req protocol.PreprocessedRequest, deadline time.Duration) (protocol.PreprocessedRequest, requestplane.Stream) {
	h.w.t.Helper()
	s := h.call(h.w.t.Context(), worker, req, nil, deadline)
	var o protocol.EngineOutput
	if err := s.Recv(h.w.t.Context(), &o); err != nil || o.Params == nil {
		h.w.t.Fatalf("first hop: %+v, %v", o, err)
	}
	req.Disagg.Strategy, req.Disagg.Params = protocol.StrategyPrefillFirst, o.Params
	return req, s
}

// room is a fresh room at a prefill worker.
func (h *hops) room(worker string, room uint64) *protocol.BootstrapInfo {
	h.w.t.Helper()
	inst := h.instance(worker)
	var card cluster.ModelCard
	eventually(h.w.t, "the card is there", func() bool {
		kv, err := h.w.c.Store.Get(h.w.t.Context(), cluster.CardKey(cluster.DefaultNamespace, "prefill", cluster.EndpointPrefill, inst.InstanceID))
		if err != nil {
			return false
		}
		card, err = decodeCard(kv)
		return err == nil
	})
	if card.Runtime.Disaggregated == nil {
		h.w.t.Fatalf("%s publishes no bootstrap endpoint", worker)
	}
	return &protocol.BootstrapInfo{Worker: worker, ID: inst.InstanceID, Address: card.Runtime.Disaggregated.Address(inst.InstanceID), Room: room}
}

// idle waits until no block of the workers is in use and no ticket is open.
func idle(t *testing.T, workers ...*running) {
	t.Helper()
	for _, x := range workers {
		eventually(t, x.Name()+" is at rest", func() bool {
			in, out := x.nixl().InFlight()
			return x.engine().Check(t.Context(), true) == nil && in+out == 0 && x.nixl().Tickets() == 0
		})
	}
}

// met waits until a prefill worker has tried its path to a decode worker: a proof that
// is interrupted keeps a ticket open for seconds.
func met(t *testing.T, pre, d *running) {
	t.Helper()
	eventually(t, pre.Name()+" has met "+d.Name(), func() bool {
		return slices.ContainsFunc(pre.nixl().Peers(), func(p nixl.PeerInfo) bool { return p.Name == d.nixl().Name() && p.Test != nil })
	})
}

// gates lets a test stop transfers of one direction.
type gates struct {
	mu   sync.Mutex
	op   nixl.Op
	shut chan struct{} // nil while open
	held int
}

// close stops transfers from now on; the returned function opens again.
func (g *gates) close(op nixl.Op) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.op, g.shut, g.held = op, shut, 0
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.shut == shut {
			g.shut = nil
			close(shut)
		}
	}
}

func (g *gates) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

func (g *gates) enter(op nixl.Op) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil || g.op != op {
		return nil
	}
	g.held++
	return g.shut
}

// gated is a transport whose transfers may be stopped before they begin.
type gated struct {
	nixl.Transport
	g *gates
}

func (t gated) Submit(r nixl.Remote, j *nixl.Job) {
	shut := t.g.enter(j.Op)
	if shut == nil {
		t.Transport.Submit(r, j)
		return
	}
	canceled := make(chan error, 1)
	j.OnCancel(func(cause error) { canceled <- cause })
	go func() {
		select {
		case <-shut:
			t.Transport.Submit(r, j)
		case cause := <-canceled:
			j.Finish(cause)
		}
	}()
}

// gate makes the transports of a worker gated.
func gate(g *gates) func(*Config) {
	return func(c *Config) {
		fresh := c.NIXL
		c.NIXL = func() nixl.Config {
			n := fresh()
			for i, t := range n.Transports {
				n.Transports[i] = gated{t, g}
			}
			return n
		}
	}
}

var errKilled = errors.New("killed")

func decodeCard(kv store.KV) (cluster.ModelCard, error) {
	return store.DecodeJSON[cluster.ModelCard](kv)
}

// A prefill worker tells the frontend what it found in its cache once the prompt is
// computed, in a room before the decode worker has come.
func TestFirstHopTellsWhatItFound(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	pre, dec := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode)
	h, p := w.hops(), prompt(r, 100)
	for i, found := range []int{0, 96, 96} {
		req := request(fmt.Sprint("r", i), p, 4)
		var room *protocol.BootstrapInfo
		if i == 2 {
			room = h.room("worker-1", 7)
		}
		s := h.call(t.Context(), "worker-1", req, room, patience.Soon)
		var o protocol.EngineOutput
		for o.Timing == nil {
			if err := s.Recv(t.Context(), &o); err != nil {
				t.Fatal(err)
			}
		}
		if o.Timing.Worker != "worker-1" || o.Timing.CachedTokens != found || (o.Params == nil) != (room != nil) || i == 0 && o.Timing.PrefillNS <= 0 {
			t.Errorf("prompt %d: %+v, want %d tokens found", i, o.Timing, found)
		}
		if room != nil { // it says so once
			check(t, w.generate(t.Context(), "", inRoom(req, room)), p, 4)
			for {
				var last protocol.EngineOutput
				if err := s.Recv(t.Context(), &last); err != nil {
					break
				}
				if last.Timing != nil {
					t.Errorf("told again: %+v", last)
				}
			}
		}
		s.Close()
		idle(t, pre, dec)
	}
}
