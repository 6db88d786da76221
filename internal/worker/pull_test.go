package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Held KV is read by the decode worker and given back by the prefill worker as soon
// as it is told so, while the caller still listens.
func TestPull(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprintf("tcp %t", tcp), func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			w.tcp = tcp
			pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode)
			h := w.hops()
			shared := prompt(r, 40)
			var wg sync.WaitGroup
			for i, n := range []int{2, 15, 16, 17, 18, 33, 64, 65, 130, 400} {
				p := prompt(r, n)
				if i%3 == 1 {
					p = append(append([]uint32{}, shared...), p...)
				}
				wg.Go(func() {
					req, _ := h.hold("worker-1", request(fmt.Sprint("r", i), p, 12), patience.Soon)
					got := w.generate(t.Context(), "", req)
					check(t, got, p, 12)
					if got.timing == nil || got.timing.Prefill == "local" && n > 17 {
						t.Errorf("prompt of %d was prefilled by %+v, want worker-1", n, got.timing)
					}
					if got.timing.Prefill == "worker-1" && got.timing.PrefillWay != protocol.WayPull {
						t.Errorf("way %q, want pull", got.timing.PrefillWay)
					}
				})
			}
			wg.Wait()
			if st := d.Status().Stats; st.FallbackTotal > 0 || st.RemotePrefillTotal == 0 {
				t.Errorf("%d fallbacks, %d remote prefills", st.FallbackTotal, st.RemotePrefillTotal)
			}
			idle(t, pre, d)
			var out, in cluster.WorkerStats
			pre.plane().Figures(&out)
			d.plane().Figures(&in)
			if out.TransfersTotal == 0 || out.TransfersTotal != in.TransfersTotal || out.TransferBytesTotal != in.TransferBytesTotal {
				t.Errorf("%d transfers of %d bytes out, %d of %d in", out.TransfersTotal, out.TransferBytesTotal, in.TransfersTotal, in.TransferBytesTotal)
			}
			if in.TransferTimes == nil || in.TransferTimes.Count() != in.TransfersTotal {
				t.Errorf("the durations of %d transfers: %+v", in.TransfersTotal, in.TransferTimes)
			}
		})
	}
}

// Both ends work for both strategies at once.
func TestBothStrategiesAtOnce(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode)
	eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	h := w.hops()
	ways := map[protocol.PrefillWay]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 24 {
		p := prompt(r, 100+i)
		wg.Go(func() {
			req := request(fmt.Sprint("r", i), p, 8)
			switch i % 3 {
			case 0:
				req, _ = h.hold("worker-1", req, patience.Soon)
			case 1:
				room := h.room("worker-1", uint64(i))
				h.call(t.Context(), "worker-1", req, room, patience.Soon)
				req.Disagg.Strategy, req.Disagg.Bootstrap = protocol.StrategyPrefillFirst, room
			}
			got := w.generate(t.Context(), "", req)
			check(t, got, p, 8)
			mu.Lock()
			defer mu.Unlock()
			if got.timing != nil {
				ways[got.timing.PrefillWay]++
			}
		})
	}
	wg.Wait()
	pre.counts(t, 8, "dynamo_component_kv_holds_total", `outcome="read"`)
	pre.counts(t, 8, "dynamo_component_kv_hold_seconds_count", `outcome="read"`)
	pre.counts(t, 8, "dynamo_component_bootstrap_rooms_total", `outcome="done"`)
	if ways[protocol.WayPull] != 8 || ways[protocol.WayBackground] != 8 || ways[protocol.WayQueue] != 8 {
		t.Errorf("ways %v, want 8 of each", ways)
	}
	idle(t, pre, d)
}

// What the frontend decided is what the decode worker says, and what it did not know
// is decided at the decode worker.
func TestRouterDecidesLocal(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode)
	h := w.hops()
	p := prompt(r, 100)
	req := request("a", p, 4)
	req.Disagg.Strategy, req.Disagg.Why = protocol.StrategyPrefillFirst, "prefill workers busy"
	got := w.generate(t.Context(), "", req)
	check(t, got, p, 4)
	if got.timing.Prefill != "local" || got.timing.PrefillWhy != "prefill workers busy" || got.timing.PrefillWay != "" {
		t.Errorf("timing %+v", got.timing)
	}
	// Now all but the last few tokens are cached, which only the decode worker knows.
	w.putSettings(func(k *Settings) { k.Prefill.MaxLocalTokens = 20 })
	req, s := h.hold("worker-1", request("b", p, 4), patience.Soon)
	got = w.generate(t.Context(), "", req)
	check(t, got, p, 4)
	if got.timing.Prefill != "local" || got.timing.PrefillWhy != "cached" {
		t.Errorf("timing %+v, want local because cached", got.timing)
	}
	s.Close() // as the frontend does when the first output comes
	idle(t, pre, d)
}

// Whatever happens to held KV, the request is answered and all blocks come back.
func TestPullFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// fault is done to the request and the worker that holds its KV.
		fault func(t *testing.T, req *protocol.PreprocessedRequest, pre *running)
		other bool // there is a second prefill worker
		way   protocol.PrefillWay
		why   string
	}{
		{name: "prefill worker dies before the pull", why: "prefill worker lost",
			fault: func(_ *testing.T, _ *protocol.PreprocessedRequest, pre *running) { _ = pre.stop(errKilled) }},
		{name: "prefill worker dies, another one is there", other: true, way: protocol.WayDirect,
			fault: func(_ *testing.T, _ *protocol.PreprocessedRequest, pre *running) { _ = pre.stop(errKilled) }},
		{name: "deadline passed", why: "remote prefill timed out",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) {
				req.Disagg.Params.Deadline = time.Now().Add(-time.Second)
			}},
		{name: "ticket revoked", why: "KV not read",
			fault: func(t *testing.T, req *protocol.PreprocessedRequest, pre *running) {
				id, err := nixl.ParseTicketID(req.Disagg.Params.Ticket)
				if err != nil {
					t.Fatal(err)
				}
				if err := pre.plane().Revoke(id); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "no ticket", why: "KV blocks do not match",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) { req.Disagg.Params.Ticket = "x" }},
		{name: "blocks of somebody else", why: "KV not read",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) { req.Disagg.Params.BlockIDs[3] = 255 }},
		{name: "blocks that do not exist", why: "KV not read",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) {
				req.Disagg.Params.BlockIDs[3] = 1 << 30
			}},
		{name: "negative block", why: "KV not read",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) { req.Disagg.Params.BlockIDs[0] = -1 }},
		{name: "another prompt", why: "KV blocks do not match",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) { req.Disagg.Params.Tokens-- }},
		{name: "another digest", why: "KV blocks do not match",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) {
				req.Disagg.Params.ModelSum = "sha256:other"
			}},
		{name: "another layout", why: "KV blocks do not match",
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) { req.Disagg.Params.KVLayout = "int8" }},
		{name: "another seed, another one is there", other: true, way: protocol.WayDirect,
			fault: func(_ *testing.T, req *protocol.PreprocessedRequest, _ *running) { req.Disagg.Params.HashSeed++ }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			w.tcp = true
			pre := w.start("worker-1", cluster.RolePrefill)
			d := w.start("worker-3", cluster.RoleDecode)
			met(t, pre, d)
			h := w.hops()
			// Once without a fault, so that the path is there.
			p := prompt(r, 100)
			req, _ := h.hold("worker-1", request("warm", p, 2), patience.Soon)
			if got := w.generate(t.Context(), "", req); got.timing == nil || got.timing.PrefillWay != protocol.WayPull {
				t.Fatalf("%+v %v", got.timing, got.err)
			}
			if tc.other {
				w.start("worker-2", cluster.RolePrefill)
				eventually(t, "both are seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 2 })
			}
			p = prompt(r, 200)
			req, s := h.hold("worker-1", request("a", p, 8), patience.Soon)
			tc.fault(t, &req, pre)
			got := w.generate(t.Context(), "", req)
			check(t, got, p, 8)
			if got.timing == nil || got.timing.PrefillWay != tc.way || got.timing.PrefillWhy != tc.why {
				t.Errorf("timing %+v, want way %q because %q", got.timing, tc.way, tc.why)
			}
			s.Close()
			idle(t, d)
			if pre.err == nil {
				idle(t, pre)
			}
		})
	}
}

// A prefill worker that dies while it is read leaves a decode worker that prefills,
// and one that dies after it was read leaves no trace.
func TestPrefillWorkerDiesAroundPull(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.tcp = true
	g := &gates{}
	pre := w.start("worker-1", cluster.RolePrefill)
	slowDecode(time.Millisecond)(&w.opts)
	d := w.start("worker-2", cluster.RoleDecode, gate(g))
	met(t, pre, d)
	h := w.hops()
	after := prompt(r, 120)
	req, _ := h.hold("worker-1", request("after", after, 200), patience.Soon)
	done := make(chan result, 1)
	go func() { done <- w.generate(t.Context(), "", req) }()
	eventually(t, "the first one decodes", func() bool { return d.Status().Stats.GeneratedTotal > 5 })

	open := g.close(nixl.Read)
	defer open()
	during := prompt(r, 130)
	req, _ = h.hold("worker-1", request("during", during, 8), patience.Soon)
	middle := make(chan result, 1)
	go func() { middle <- w.generate(t.Context(), "", req) }()
	eventually(t, "the second one is being read", func() bool { return g.waiting() == 1 })
	_ = pre.stop(errKilled)
	open()
	got := <-middle
	check(t, got, during, 8)
	if got.timing == nil || got.timing.Prefill != "local" {
		t.Errorf("timing %+v", got.timing)
	}
	check(t, <-done, after, 200)
	idle(t, d)
}

// Held blocks come back in a bounded time when nobody reads them: at the deadline,
// when the caller leaves, or when the decode worker and with it the caller is lost.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s requestplane.Stream, g *gates, d *running){
		"deadline":     func(*testing.T, requestplane.Stream, *gates, *running) {},
		"caller":       func(_ *testing.T, s requestplane.Stream, _ *gates, _ *running) { s.Close() },
		"decode, dead": func(_ *testing.T, s requestplane.Stream, _ *gates, d *running) { _ = d.stop(errKilled); s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			g := &gates{}
			pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode, gate(g))
			met(t, pre, d)
			h := w.hops()
			p := prompt(r, 100)
			req, _ := h.hold("worker-1", request("warm", p, 2), patience.Soon)
			check(t, w.generate(t.Context(), "", req), p, 2)
			open := g.close(nixl.Read)
			defer open()
			deadline := patience.Soon
			if name == "deadline" {
				deadline = 300 * time.Millisecond
			}
			req, s := h.hold("worker-1", request("a", prompt(r, 200), 5), deadline)
			if st := pre.Status().Stats; name != "deadline" && st.KVOutgoing == 0 {
				t.Error("no block is held")
			}
			done := make(chan result, 1)
			go func() { done <- w.generate(t.Context(), "", req) }()
			if name != "deadline" {
				eventually(t, "it is being read", func() bool { return g.waiting() == 1 })
			}
			begin := time.Now()
			end(t, s, g, d)
			idle(t, pre)
			// A reader that gives up may say so before its caller leaves.
			pre.counts(t, 2, "dynamo_component_kv_holds_total")
			pre.counts(t, 1, "dynamo_component_kv_holds_total", `outcome="read"`) // the warm one
			if name == "caller" {
				pre.counts(t, 1, "dynamo_component_kv_holds_total", `outcome="left"`)
			}
			if took := time.Since(begin); took > patience.Soon/4 {
				t.Errorf("blocks came back after %s", took)
			}
			open()
			<-done
			// A word that comes too late, or twice, is about nothing.
			for range 2 {
				pre.term.Load().duty.Noticed("worker-9.0", protocol.PrefillNotice{Ticket: req.Disagg.Params.Ticket, Phase: protocol.PrefillRead})
			}
			next := prompt(r, 90)
			req, s = h.hold("worker-1", request("b", next, 5), patience.Soon)
			eventually(t, "the next one is held", func() bool { return pre.Status().Stats.KVOutgoing > 0 })
			s.Close()
			idle(t, pre)
		})
	}
}

// A client that leaves frees everything at both ends, whatever step it is at.
func TestCancelAtEachStep(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowPrefill(&w.opts)
	pre := w.start("worker-1", cluster.RolePrefill)
	w.opts.StepTime = nil
	slowDecode(2 * time.Millisecond)(&w.opts)
	g := &gates{}
	d := w.start("worker-2", cluster.RoleDecode, gate(g))
	h := w.hops()
	p := prompt(r, 60)
	req, _ := h.hold("worker-1", request("warm", p, 2), patience.Soon)
	check(t, w.generate(t.Context(), "", req), p, 2)

	t.Run("while it is computed", func(t *testing.T) {
		s := h.call(t.Context(), "worker-1", request("a", prompt(r, 1500), 5), nil, patience.Soon)
		eventually(t, "the prefill runs", func() bool { return pre.Status().Stats.Running == 1 })
		s.Close()
		idle(t, pre, d)
	})
	t.Run("while it waits for the prefill worker", func(t *testing.T) {
		first := h.call(t.Context(), "worker-1", request("b1", prompt(r, 1500), 5), nil, patience.Soon)
		eventually(t, "the prefill runs", func() bool { return pre.Status().Stats.Running == 1 })
		s := h.call(t.Context(), "worker-1", request("b2", prompt(r, 100), 5), nil, patience.Soon)
		s.Close()
		first.Close()
		idle(t, pre, d)
	})
	t.Run("while it is held", func(t *testing.T) {
		_, s := h.hold("worker-1", request("c", prompt(r, 100), 5), patience.Soon)
		s.Close()
		idle(t, pre, d)
	})
	for _, step := range []string{"while it is read", "while it decodes"} {
		t.Run(step, func(t *testing.T) {
			req, s := h.hold("worker-1", request(step, prompt(r, 100), 1000), patience.Soon)
			open := func() {}
			if step == "while it is read" {
				open = g.close(nixl.Read)
			}
			defer open()
			before := d.Status().Stats.GeneratedTotal
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan result, 1)
			go func() { done <- w.generate(ctx, "", req) }()
			eventually(t, step, func() bool {
				return g.waiting() == 1 || d.Status().Stats.GeneratedTotal > before+3
			})
			cancel()
			s.Close()
			if got := <-done; got.err == nil {
				t.Error("the cancelled request ended well")
			}
			idle(t, pre, d)
		})
	}
}

// What a frontend may send to a prefill worker that cannot be served.
func TestServePrefillRefuses(t *testing.T) {
	w := newWorld(t)
	pre := w.start("worker-1", cluster.RolePrefill)
	h := w.hops()
	bad := request("a", make([]uint32, 20), 1)
	bad.ModelSum = "sha256:other"
	for name, tc := range map[string]struct {
		req      protocol.PreprocessedRequest
		deadline time.Duration
		want     requestplane.Kind
	}{
		"digest":   {bad, time.Second, requestplane.KindUnavailable},
		"empty":    {request("b", nil, 1), time.Second, requestplane.KindInvalidArgument},
		"one":      {request("c", make([]uint32, 1), 1), time.Second, requestplane.KindInvalidArgument},
		"too long": {request("d", make([]uint32, 4000), 1), time.Second, requestplane.KindInvalidArgument},
		"token":    {request("e", []uint32{vocab, 1}, 1), time.Second, requestplane.KindInvalidArgument},
		"late":     {request("f", make([]uint32, 20), 1), -time.Second, requestplane.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := h.call(t.Context(), "worker-1", tc.req, nil, tc.deadline)
			var o protocol.EngineOutput
			err := s.Recv(t.Context(), &o)
			var remote *requestplane.RemoteError
			if !errors.As(err, &remote) || remote.Kind != tc.want {
				t.Errorf("got %+v %v, want %s", o, err, tc.want)
			}
		})
	}
	idle(t, pre)
}
