package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
)

// crowd fills the queue of a prefill worker's engine; the returned function empties it.
// What runs there takes until then.
func crowd(t *testing.T, pre *running) (disperse func()) {
	t.Helper()
	e := pre.engine()
	all := make(chan *engine.Stream, engine.DefaultMaxWaiting+1)
	submit := func(i int) {
		s, err := e.Submit(t.Context(), engine.Request{ID: fmt.Sprint("crowd-", i), Tokens: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 2000}})
		if err != nil {
			t.Error(err)
			return
		}
		all <- s
	}
	submit(0)
	eventually(t, "one runs", func() bool { return e.Stats().Running == 1 })
	var wg sync.WaitGroup
	for k := range 64 { // the engine answers all that ask between two steps
		wg.Go(func() {
			for i := k + 1; i <= engine.DefaultMaxWaiting; i += 64 {
				submit(i)
			}
		})
	}
	wg.Wait()
	return sync.OnceFunc(func() {
		close(all)
		for s := range all {
			s.Cancel()
		}
	})
}

// A prefill worker whose engine has no room gives the message back to the queue: it is
// done by whoever has room next, and the decode worker does not notice.
func TestPrefillWithoutRoomGoesBack(t *testing.T) {
	for _, tc := range []struct {
		name       string
		deliveries int // of a message
		room       bool
	}{
		{"there is room later", 12, true},
		{"there is none", 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.queue = events.NewMemoryQueue(events.QueueConfig{MaxDeliver: tc.deliveries})
			slowDecode(2 * time.Millisecond)(&w.opts)
			pre := w.start("worker-1", cluster.RolePrefill, func(c *Config) { c.Assignment.Engine.MaxSeqs = 1 })
			w.opts.StepTime = nil
			d := w.start("worker-2", cluster.RoleDecode)
			eventually(t, "the prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
			disperse := crowd(t, pre)
			defer disperse()
			p, answer := prompt(seeded(t), 100), make(chan result, 1)
			go func() { answer <- w.generate(context.Background(), "worker-2", request("a", p, 5)) }()
			if tc.room {
				eventually(t, "it is refused", func() bool { return pre.engine().Stats().RejectedTotal > 0 })
				disperse()
			}
			got := <-answer
			check(t, got, p, 5)
			by, fallbacks := "local", uint64(1)
			if tc.room {
				by, fallbacks = "worker-1", 0
			}
			if got.timing == nil || got.timing.Prefill != by || d.Status().Stats.FallbackTotal != fallbacks {
				t.Errorf("prefilled by %+v with %d fallbacks, want by %s", got.timing, d.Status().Stats.FallbackTotal, by)
			}
			refused := pre.engine().Stats().RejectedTotal
			if !tc.room && refused != uint64(tc.deliveries) {
				t.Errorf("tried %d times, want %d", refused, tc.deliveries)
			}
			if n := pre.metric(t, metrics.ComponentPrefillRedelivered); tc.room && n != float64(refused) {
				t.Errorf("%v redeliveries are counted after %d refusals", n, refused)
			}
			disperse()
			idle(t, d)
		})
	}
}

// A message of a decode worker that the store does not know goes back to the queue: the
// worker registers again when the store has lost its data.
func TestPrefillForAWorkerThatRegistersAgain(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	pre := w.start("worker-1", cluster.RolePrefill)
	d := w.start("worker-2", cluster.RoleDecode)
	eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	agent := d.plane().Name()
	key := cluster.NIXLMetadataKey(cluster.DefaultNamespace, agent)
	meta, err := w.c.Store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.c.Store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the decode worker is forgotten", func() bool { return !pre.nixl().Known(agent, "") })
	p := prompt(r, 100)
	answered := make(chan result, 1)
	go func() { answered <- w.generate(t.Context(), "", request("a", p, 8)) }()
	eventually(t, "the message was given back", func() bool { return pre.metric(t, metrics.ComponentPrefillQueueWait+"_count") > 0 })
	if _, err := w.c.Store.Put(t.Context(), key, meta.Value); err != nil {
		t.Fatal(err)
	}
	got := <-answered
	check(t, got, p, 8)
	if got.timing == nil || got.timing.Prefill != "worker-1" {
		t.Errorf("prefilled by %+v, want worker-1", got.timing)
	}
}
