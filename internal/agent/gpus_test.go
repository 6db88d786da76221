package agent

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// fakeGPUs is a source whose reports a test sets.
type fakeGPUs struct {
	mu      sync.Mutex
	r       cluster.GPUReport
	err     error
	hang    chan struct{} // if set, Report waits for it
	reports int
	closed  bool
}

func (f *fakeGPUs) Report() (cluster.GPUReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports++
	if f.hang != nil {
		<-f.hang
	}
	return f.r, f.err
}

func (f *fakeGPUs) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fakeGPUs) set(change func(f *fakeGPUs)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeGPUs) open() (GPUSource, error) { return f, nil }

func oneGPU(use float64) cluster.GPUReport {
	return cluster.GPUReport{At: time.Now(), Driver: "580.65.06", CUDA: "13.0", GPUs: []cluster.GPU{{
		Name: "NVIDIA H200", UUID: "GPU-5a1d", Bus: "00000000:3B:00.0", MemoryBytes: new(int64(141 << 30)), MemoryUsed: new(int64(1 << 30)), Utilization: &use,
	}}}
}

func TestGPUsAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeGPUs{r: oneGPU(0.25)}
		g := newGPUs(source.open, testLog(t))
		var mu sync.Mutex
		var heard []cluster.GPUReport
		g.heard = func(r cluster.GPUReport) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, r)
		}
		g.start(t.Context(), time.Minute)
		if r := g.report(); len(r.GPUs) != 1 || *r.GPUs[0].Utilization != 0.25 {
			t.Errorf("after the start: %+v", r)
		}
		synctest.Wait()
		source.set(func(f *fakeGPUs) { f.r = oneGPU(0.75) })
		time.Sleep(gpuEvery)
		synctest.Wait()
		if r := g.report(); *r.GPUs[0].Utilization != 0.75 {
			t.Errorf("a second later: %+v", r)
		}
		// One that fell off the bus keeps its name, and so does one that nobody can ask for.
		source.set(func(f *fakeGPUs) { f.r.GPUs = []cluster.GPU{{Name: "unknown", Failed: "fallen off the bus"}} })
		time.Sleep(gpuEvery)
		synctest.Wait()
		lost := g.report().GPUs[0]
		source.set(func(f *fakeGPUs) { f.err = errors.New("no permission") })
		time.Sleep(gpuEvery)
		synctest.Wait()
		dumb := g.report().GPUs[0]
		for why, got := range map[string]cluster.GPU{"fallen off the bus": lost, "no permission": dumb} {
			want := oneGPU(0).Inventory().GPUs[0]
			want.Failed = why
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", why, got, want)
			}
		}
		if err := g.stop(t.Context()); err != nil || !source.closed {
			t.Errorf("stop() = %v, closed: %v", err, source.closed)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(heard) != 4 || heard[0].GPUs[0].Utilization == nil || heard[3].GPUs[0].Failed == "" {
			t.Errorf("heard %+v", heard)
		}
	})
}

func TestNoGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		open func() (GPUSource, error)
		want string
	}{
		"no library":          {func() (GPUSource, error) { return nil, errors.New("NVIDIA's driver is not installed") }, "not installed"},
		"a driver without":    {(&fakeGPUs{r: cluster.GPUReport{Missing: "has no GPU"}}).open, "has no GPU"},
		"a driver that fails": {(&fakeGPUs{err: errors.New("count GPUs: unknown error")}).open, "unknown error"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGPUs(c.open, testLog(t))
			g.heard = func(r cluster.GPUReport) { t.Errorf("heard %+v", r) }
			g.start(t.Context(), long)
			select {
			case <-g.done: // nothing to read again
			case <-time.After(long):
				t.Error("the reading goes on")
			}
			if r := g.report(); !strings.Contains(r.Missing, c.want) || len(r.GPUs) != 0 {
				t.Errorf("report() = %+v", r)
			}
			if err := g.stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDriverHangs has a driver that answers only after the node has started, and then
// not while it stops: neither waits for it.
func TestDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeGPUs{hang: make(chan struct{})}
		g := newGPUs(source.open, testLog(t))
		g.start(t.Context(), 5*time.Second)
		if r := g.report(); !strings.Contains(r.Missing, "has not answered for 5s") {
			t.Errorf("report() = %+v", r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.stop(ctx); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("stop() = %v", err)
		}
		close(source.hang)
		<-g.done
	})
}

// TestGPUsOfANode follows the figures out of a node: what it is in its record, what it
// does in metrics, in events and to who asks.
func TestGPUsOfANode(t *testing.T) {
	x := startExternal(t)
	source := &fakeGPUs{r: oneGPU(0.25)}
	a := startAgent(t, x.config(), func(o *Options) { o.GPUs = source.open })
	n, _, err := store.GetJSON[cluster.Node](t.Context(), x.store, cluster.NodeKey(a.nodeID))
	if err != nil {
		t.Fatal(err)
	}
	if want := source.r.Inventory(); n.GPU == nil || !reflect.DeepEqual(*n.GPU, want) || n.GPU.GPUs[0].Utilization != nil {
		t.Errorf("the record has %+v, want %+v", n.GPU, want)
	}
	var mu sync.Mutex
	var heard cluster.NodeStats
	_, err = a.stores.bus.Subscribe(t.Context(), events.Subject(a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicNodeStats), func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Decode(&heard) // what cannot be decoded is not what is waited for
	})
	if err != nil {
		t.Fatal(err)
	}
	source.set(func(f *fakeGPUs) { f.r = oneGPU(0.75) })
	patience.Until(t, "an event has the new figures", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return heard.NodeID == a.nodeID && *heard.GPU.GPUs[0].Utilization == 0.75
	})
	if _, body := get(t, n.StatusURL+"/metrics"); !strings.Contains(body, `dynamo_gpu_utilization_ratio{gpu="0",name="NVIDIA H200",uuid="GPU-5a1d"} 0.75`) {
		t.Errorf("metrics: %.2000s", body)
	}
	prefix := cluster.InstancePrefix(a.cfg.Namespace, cluster.ComponentAgent, cluster.EndpointNodeStats)
	kvs, _, err := x.store.List(t.Context(), prefix)
	if err != nil || len(kvs) != 1 {
		t.Fatalf("%d endpoints of figures: %v", len(kvs), err)
	}
	inst, err := store.DecodeJSON[cluster.Instance](kvs[0])
	if err != nil {
		t.Fatal(err)
	}
	stream, err := a.client.Call(t.Context(), inst.Transport.Address(), "r1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var told cluster.NodeStats
	if err := stream.Recv(t.Context(), &told); err != nil || told.NodeID != a.nodeID || *told.GPU.GPUs[0].Utilization != 0.75 {
		t.Errorf("asked, it tells %+v, %v", told, err)
	}
}
