package worker

import (
	"context"
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
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// inRoom is the request for a decode worker that goes to a room.
func inRoom(req protocol.PreprocessedRequest, room *protocol.BootstrapInfo) protocol.PreprocessedRequest {
	req.Disagg.Strategy, req.Disagg.Bootstrap = protocol.StrategyPrefillFirst, room
	return req
}

// Prefill and decode worker may come to a room in any order; blocks are written while
// later ones are computed.
func TestOverlapKVTransfer(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp %t", tcp), func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			w.tcp = tcp
			pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode)
			h := w.hops()
			var wg sync.WaitGroup
			for i, n := range []int{2, 16, 17, 18, 33, 64, 130, 400, 900} {
				for order, name := range []string{"together", "prefill first", "decode first"} {
					p := prompt(r, n)
					wg.Go(func() {
						req := request(fmt.Sprint("r", i, name), p, 6)
						room := h.room("worker-1", uint64(100*i+order))
						done := make(chan result, 1)
						if order == 2 {
							go func() { done <- w.generate(t.Context(), "", inRoom(req, room)) }()
							eventually(t, "the decode worker waits", func() bool { return n <= 17 || d.waitsAt("worker-1", req.RequestID) })
						}
						s := h.call(t.Context(), "worker-1", req, room, patience.Soon)
						if order == 1 {
							eventually(t, "the prompt is computed", func() bool { return pre.Status().Stats.KVOutgoing > 0 })
						}
						if order != 2 {
							go func() { done <- w.generate(t.Context(), "", inRoom(req, room)) }()
						}
						got := <-done
						s.Close() // as the frontend does with the first output
						check(t, got, p, 6)
						if got.timing == nil || got.timing.Prefill == "local" && n > 17 || got.timing.Prefill == "worker-1" && got.timing.PrefillWay != protocol.WayBackground {
							t.Errorf("%s, prompt of %d: timing %+v", name, n, got.timing)
						}
					})
				}
			}
			wg.Wait()
			if st := d.Status().Stats; st.FallbackTotal > 0 || st.RemotePrefillTotal == 0 {
				t.Errorf("%d fallbacks, %d remote prefills", st.FallbackTotal, st.RemotePrefillTotal)
			}
			idle(t, pre, d)
		})
	}
}

// Blocks travel while later ones are still being computed.
func TestOverlapKVTransferOverlaps(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowPrefill(&w.opts)
	pre := w.start("worker-1", cluster.RolePrefill, func(c *Config) { c.Assignment.Engine.MaxBatchTokens = 64 })
	w.opts.StepTime = nil
	d := w.start("worker-2", cluster.RoleDecode)
	met(t, pre, d)
	h := w.hops()
	p := prompt(r, 1500)
	req, room := request("a", p, 5), h.room("worker-1", 7)
	h.call(t.Context(), "worker-1", req, room, patience.Soon)
	done := make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", inRoom(req, room)) }()
	overlapped := false
	eventually(t, "the prefill ends", func() bool {
		overlapped = overlapped || pre.Status().Stats.Running == 1 && pre.nixl().Stats().TxBytes > uint64(10*pre.plane().BlockBytes())
		return d.Status().Stats.GeneratedTotal > 0
	})
	check(t, <-done, p, 5)
	if !overlapped {
		t.Error("nothing was written before the end of the computation")
	}
	idle(t, pre, d)
}

// scene is a request that meets a fault in a room.
type scene struct {
	w      *world
	h      *hops
	pre, d *running
	req    protocol.PreprocessedRequest
	room   *protocol.BootstrapInfo
	g      *gates        // of the prefill worker
	limit  time.Duration // of the prefill
}

// prefill sends the request to the prefill worker.
func (s *scene) prefill(t *testing.T) requestplane.Stream {
	t.Helper()
	return s.h.call(t.Context(), "worker-1", s.req, s.room, s.limit)
}

// decode sends it to the decode worker.
func (s *scene) decode(ctx context.Context) <-chan result {
	done := make(chan result, 1)
	go func() { done <- s.w.generate(ctx, "", inRoom(s.req, s.room)) }()
	return done
}

// computing waits until the prompt is being computed.
func (s *scene) computing(t *testing.T) {
	t.Helper()
	eventually(t, "it computes", func() bool { return s.pre.Status().Stats.Running == 1 })
}

func newScene(t *testing.T, other bool) *scene {
	r := seeded(t)
	w := newWorld(t)
	w.tcp = true
	slowPrefill(&w.opts)
	s := &scene{w: w, g: &gates{}, limit: patience.Soon}
	s.pre = w.start("worker-1", cluster.RolePrefill, gate(s.g), func(c *Config) { c.Assignment.Engine.MaxBatchTokens = 64 })
	w.opts.StepTime = nil
	s.d = w.start("worker-3", cluster.RoleDecode)
	met(t, s.pre, s.d)
	if other {
		met(t, w.start("worker-2", cluster.RolePrefill), s.d)
		eventually(t, "both are seen", func() bool { return len(s.d.sees(cluster.RolePrefill)) == 2 })
	}
	s.h = w.hops()
	s.req, s.room = request("a", prompt(r, 900), 8), s.h.room("worker-1", 5)
	return s
}

// Whatever happens to one side of a room, the other does not wait for it and all
// blocks come back.
func TestBackgroundFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		other bool
		run   func(t *testing.T, s *scene) result
		way   protocol.PrefillWay
		why   string
	}{
		{name: "prefill worker dies while it computes", why: "prefill worker lost", run: func(t *testing.T, s *scene) result {
			s.prefill(t)
			done := s.decode(t.Context())
			s.computing(t)
			_ = s.pre.stop(errKilled)
			return <-done
		}},
		{name: "prefill worker dies, another one is there", other: true, way: protocol.WayDirect, run: func(t *testing.T, s *scene) result {
			s.prefill(t)
			done := s.decode(t.Context())
			s.computing(t)
			_ = s.pre.stop(errKilled)
			return <-done
		}},
		{name: "prefill worker dies while it writes", why: "prefill worker lost", run: func(t *testing.T, s *scene) result {
			open := s.g.close(nixl.Write)
			defer open()
			s.prefill(t)
			done := s.decode(t.Context())
			eventually(t, "it writes", func() bool { return s.g.waiting() > 0 })
			_ = s.pre.stop(errKilled)
			return <-done
		}},
		{name: "the frontend takes the prefill back", why: "prefill worker failed", run: func(t *testing.T, s *scene) result {
			stream := s.prefill(t)
			done := s.decode(t.Context())
			s.computing(t)
			stream.Close()
			return <-done
		}},
		{name: "the prefill has failed before the decode worker comes", why: "prefill worker failed", run: func(t *testing.T, s *scene) result {
			bad := s.req
			bad.TokenIDs = append([]uint32{vocab + 5}, bad.TokenIDs[1:]...)
			stream := s.h.call(t.Context(), "worker-1", bad, s.room, patience.Soon)
			var o protocol.EngineOutput
			if err := stream.Recv(t.Context(), &o); err != nil {
				t.Errorf("the room is not open: %v", err)
			}
			if err := stream.Recv(t.Context(), &o); err == nil {
				t.Errorf("a token outside the vocabulary: %+v", o)
			}
			return <-s.decode(t.Context())
		}},
		{name: "another prompt", why: "prefill worker failed", run: func(t *testing.T, s *scene) result {
			other := s.req
			other.TokenIDs = append([]uint32{(s.req.TokenIDs[0] + 1) % vocab}, s.req.TokenIDs[1:]...)
			s.h.call(t.Context(), "worker-1", other, s.room, patience.Soon)
			return <-s.decode(t.Context())
		}},
		{name: "the room is taken", why: "prefill worker failed", run: func(t *testing.T, s *scene) result {
			s.prefill(t)
			s.computing(t)
			guess := s.request(s.d)
			guess.EngineID = "worker-8.0" // whoever it is, nobody can reach it
			rooms := runtimetest.Client(t, s.w.c.Runtime(t, "worker-8"), "prefill", cluster.EndpointBootstrap)
			at := cluster.Instance{InstanceID: s.room.ID, Worker: s.room.Worker, Transport: cluster.Transport{TCP: s.room.Address}}
			call, err := rooms.Call(t.Context(), at, "guess", nil, protocol.JoinRoom{Room: s.room.Room, Request: guess})
			if err != nil {
				t.Fatal(err)
			}
			defer call.Close()
			var n protocol.PrefillNotice
			if err := call.Recv(t.Context(), &n); err == nil {
				t.Errorf("somebody else in the room: %+v", n)
			}
			return <-s.decode(t.Context())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene(t, tc.other)
			got := tc.run(t, s)
			check(t, got, s.req.TokenIDs, 8)
			if got.timing == nil || got.timing.PrefillWay != tc.way || got.timing.PrefillWhy != tc.why {
				t.Errorf("timing %+v, want way %q because %q", got.timing, tc.way, tc.why)
			}
			idle(t, s.d)
			if s.pre.err == nil {
				idle(t, s.pre)
			}
		})
	}
}

// request is what the decode worker hands to a room, without blocks that anyone may
// write to.
func (s *scene) request(d *running) protocol.RemotePrefillRequest {
	id := d.plane().Identity()
	n := len(s.req.TokenIDs) - 1
	return protocol.RemotePrefillRequest{
		RequestID: "guess", ModelSum: id.ModelSum, TokenIDs: s.req.TokenIDs[:n], EngineID: d.nixl().Name(), Worker: d.Name(),
		BlockIDs: make([]int32, d.plane().BlocksOf(n)), BlockSize: id.BlockSize, BlockBytes: id.BlockBytes, KVLayout: id.KVLayout,
		HashSeed: id.HashSeed, Ticket: "00112233445566778899aabbccddeeff", Deadline: time.Now().Add(patience.Soon),
	}
}

// A client that leaves, or a decode worker that is lost, ends both sides.
func TestBackgroundCancel(t *testing.T) {
	for name, end := range map[string]func(s *scene, cancel func(), stream requestplane.Stream){
		"client leaves":          func(_ *scene, cancel func(), stream requestplane.Stream) { cancel(); stream.Close() },
		"decode worker is lost":  func(s *scene, _ func(), _ requestplane.Stream) { _ = s.d.stop(errKilled) },
		"frontend is slow to do": func(_ *scene, cancel func(), _ requestplane.Stream) { cancel() },
	} {
		for _, step := range []string{"computing", "writing"} {
			t.Run(name+" while "+step, func(t *testing.T) {
				s := newScene(t, false)
				s.limit = 4 * time.Second // of a room whose decode worker is lost
				open := func() {}
				if step == "writing" {
					open = s.g.close(nixl.Write)
				}
				defer open()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream := s.prefill(t)
				done := s.decode(ctx)
				s.computing(t)
				eventually(t, "it waits for its blocks", func() bool { return s.d.Status().Stats.RemoteWait == 1 })
				eventually(t, step, func() bool { return step == "computing" || s.g.waiting() > 0 })
				end(s, cancel, stream)
				if got := <-done; got.err == nil {
					t.Errorf("the request ended well: %+v", got)
				}
				idle(t, s.pre)
				if s.d.err == nil {
					idle(t, s.d)
				}
			})
		}
	}
}

// waitsAt reports whether a decode worker has handed a request to a prefill worker.
func (r *running) waitsAt(prefill, request string) bool {
	all, _ := r.plane().Movements(cluster.MaxActivity)
	return slices.ContainsFunc(all, func(m cluster.Transfer) bool {
		return m.RequestID == request && m.Peer == prefill && m.State == cluster.TransferActive
	})
}
