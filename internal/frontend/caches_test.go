package frontend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/worker"
)

// lossy is a bus that loses some of the events on a topic.
type lossy struct {
	events.Bus
	mu      sync.Mutex
	rng     *rand.Rand
	percent int
	lost    atomic.Int32
}

func (l *lossy) Publish(ctx context.Context, subject string, v any) error {
	l.mu.Lock()
	lose := strings.Contains(subject, ".kv-") && l.rng.IntN(100) < l.percent
	l.mu.Unlock()
	if lose {
		l.lost.Add(1)
		return nil
	}
	return l.Bus.Publish(ctx, subject, v)
}

// resident asks a worker for the blocks that its cache finds.
func resident(t *testing.T, c *runtime.Client, id cluster.InstanceID) []uint64 {
	t.Helper()
	for _, inst := range c.All() {
		if inst.InstanceID != id {
			continue
		}
		stream, err := c.Call(t.Context(), inst, fmt.Sprintf("resident-%d", rand.Uint64()), nil, protocol.KVEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		var p protocol.KVEventsPage
		if err := stream.Recv(t.Context(), &p); err != nil || !p.All {
			t.Fatalf("page %+v: %v", p, err)
		}
		slices.Sort(p.Blocks)
		return p.Blocks
	}
	t.Fatalf("no instance %s", id)
	return nil
}

// Whatever events are lost, the frontend's index has what the workers' caches have, also
// of workers that came before it, that start anew, and after their caches were cleared.
func TestIndexIsTrue(t *testing.T) {
	w := newWorld(t)
	bus := func(c *worker.Config) {
		l := &lossy{Bus: c.Bus, rng: rand.New(rand.NewPCG(1, 2)), percent: 30}
		c.Bus = l
		t.Cleanup(func() {
			if l.lost.Load() == 0 {
				t.Error("no event was lost")
			}
		})
	}
	small := func(c *worker.Config) {
		load := c.Load
		c.Load = func(ctx context.Context, p func(float64)) (*worker.Loaded, error) {
			l, err := load(ctx, p)
			if err == nil {
				l.Blocks = 40 // some 10 prompts
			}
			return l, err
		}
	}
	first, _ := w.realWorker("worker-1", 0, bus, small)
	second, stop := w.realWorker("worker-2", 0, bus, small)
	f := w.frontend().waitModel(2)
	caches := runtimeClient(t, w, "decode", cluster.EndpointKVEvents)
	load := func(salt int) {
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				prompt := fmt.Sprintf("%d: The same beginning for all. %s", salt, strings.Repeat(fmt.Sprint(i%7), 10+i))
				_ = wholeAnswer(t, f.post("/v1/completions", textBody(body{"prompt": prompt, "max_tokens": 20, "ignore_eos": true})))
			})
		}
		wg.Wait()
	}
	true2 := func(what string, workers ...*worker.Worker) {
		t.Helper()
		for _, wk := range workers {
			id := wk.Status().InstanceID
			patience.Until(t, what+": the index has what "+wk.Name()+" has", func() bool {
				got := f.caches.index.Snapshot(id, kvindex.Device)
				slices.Sort(got)
				return slices.Equal(got, resident(t, caches, id)) && len(got) > 0
			})
		}
	}
	load(1)
	true2("after some load", first, second)
	late := w.frontend().waitModel(2)
	f, early := late, f
	true2("a frontend that came later", first, second)
	f = early
	series := `dynamo_frontend_kv_found_blocks_total{worker="worker-2"}`
	if f.metric(series) <= 0 || f.metric("dynamo_frontend_kv_index_blocks") <= 0 || f.metric("dynamo_frontend_kv_index_bytes") <= 0 {
		t.Errorf("found %v blocks at worker-2, %v in the index of %v bytes", f.metric(series), f.metric("dynamo_frontend_kv_index_blocks"), f.metric("dynamo_frontend_kv_index_bytes"))
	}
	stop()
	patience.Until(t, "the worker that stopped is forgotten", func() bool { return f.caches.index.Size().Workers == 1 })
	patience.Until(t, "its series are removed", func() bool { return f.metric(series) < 0 })
	again, _ := w.realWorker("worker-2", 0, bus, small)
	f.waitModel(2)
	load(2)
	true2("after a restart", first, again)
	clearKV := runtimeClient(t, w, "decode", cluster.EndpointClearKV)
	for _, inst := range clearKV.All() {
		stream, err := clearKV.Call(t.Context(), inst, "clear-"+inst.Worker, nil, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		var n protocol.ClearedKV
		if err := stream.Recv(t.Context(), &n); err != nil || n.Blocks == 0 {
			t.Errorf("cleared %d: %v", n.Blocks, err)
		}
		stream.Close()
	}
	patience.Until(t, "a cleared cache leaves nothing", func() bool { return f.caches.index.Size().Held == 0 })
	load(3)
	true2("after the caches were cleared", first, again)
	f.caches.mu.Lock()
	if n := len(f.caches.workers); n != 2 {
		t.Errorf("%d workers are known, want those that are there", n)
	}
	f.caches.mu.Unlock()
	report := f.caches.report(nil)
	if len(report.Workers) != 2 || report.Workers[0].Worker != "worker-1" || report.Workers[0].GapsTotal == 0 || report.Workers[0].Accuracy.Requests == 0 || report.Workers[0].Recent == nil || time.Since(report.At).Abs() > time.Minute {
		t.Errorf("report %+v", report)
	}
}

// What any worker holds is reusable, wherever a request goes, and counts as such.
func TestReusableBlocksAreCounted(t *testing.T) {
	w := newWorld(t)
	first, _ := w.realWorker("worker-1", 0)
	second, _ := w.realWorker("worker-2", 0)
	one, two := first.Status().InstanceID, second.Status().InstanceID
	f := w.configured(func(c *Config) { c.NoKVEvents, c.KVTTL = true, time.Hour }).waitModel(2)
	patience.Until(t, "the workers are followed", func() bool { return len(f.caches.report(nil).Workers) == 2 })
	hashes := []uint64{1, 2, 3, 4}
	f.caches.routed(one, hashes)
	candidates := []router.Candidate{{ID: two, Worker: "worker-2"}}
	has := f.caches.lookup(append(hashes, 5, 6))
	if f.caches.describe(candidates, has); has.most != 4 || candidates[0].Overlap.Blocks() != 0 {
		t.Errorf("%d blocks are held, %d at the candidate; want 4 and 0", has.most, candidates[0].Overlap.Blocks())
	}
	f.caches.found(two, 2, 4, 1)
	for metric, want := range map[string]float64{"kv_reusable": 4, "kv_predicted": 2, "kv_found": 1, "kv_false": 1} {
		if got := f.metric("dynamo_frontend_" + metric + `_blocks_total{worker="worker-2"}`); got != want {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
	}
	report := f.caches.report(nil)
	if a := *report.Workers[1].Recent; a != (cluster.KVAccuracy{Requests: 1, Predicted: 2, Found: 1, False: 1}) || a != report.Workers[1].Accuracy {
		t.Errorf("recent accuracy %+v", a)
	}
}

func runtimeClient(t *testing.T, w *world, component, endpoint string) *runtime.Client {
	t.Helper()
	c, err := runtime.NewClient(t.Context(), w.runtime("operator-"+endpoint, nil), component, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return c
}
