package frontend

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// replica runs a frontend of its own node that routes by caches and load. kill ends its
// connections at once, as kill -9 does; its lease stays until it expires.
func (w *world) replica(name string, configure func(*Config)) (f *front, kill func()) {
	w.t.Helper()
	var server requestplane.Server
	var bus events.Bus
	f = w.configured(func(c *Config) {
		c.Runtime = w.runtime(name, func(r *runtime.Config) { server, bus, r.Node = r.Server, r.Bus, name })
		c.Node, c.Settings = name, settings(router.KV)
		if configure != nil {
			configure(c)
		}
	})
	return f, func() {
		_ = bus.Close()
		_ = server.Close()
	}
}

// know waits until frontends know each other.
func know(t *testing.T, all ...*front) {
	t.Helper()
	for _, f := range all {
		patience.Until(t, "the frontends know each other", func() bool {
			n := 0
			for _, r := range f.replicaSync().Frontends {
				if r.SnapshotsTotal > 0 && r.OutOfDateSince.IsZero() {
					n++
				}
			}
			return n == len(all)-1
		})
	}
}

// begin begins a request whose answer nobody waits for until the end of the test.
func (f *front) begin(wg *sync.WaitGroup, prompt string) { f.beginLong(wg, prompt, 5) }

// beginLong posts a request for that many tokens and reads its answer, in the background.
func (f *front) beginLong(wg *sync.WaitGroup, prompt string, most int) {
	wg.Go(func() {
		resp, err := f.tryPost(f.t.Context(), "/v1/completions", textBody(body{"prompt": prompt, "max_tokens": most}))
		if err != nil {
			f.t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	})
}

// busy returns where a frontend counts requests, by worker.
func (f *front) busy() map[cluster.InstanceID]int {
	out := map[cluster.InstanceID]int{}
	for _, inst := range f.workers.Instances() {
		if n := f.load.InFlight(inst.InstanceID); n > 0 {
			out[inst.InstanceID] = n
		}
	}
	return out
}

// Two frontends that get the same prompt at once send it to one worker.
func TestBurstThroughTwoFrontends(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	var fakes []*fake
	for i := range 4 {
		fakes = append(fakes, w.fake(fmt.Sprintf("worker-%d", i+1), say("abc", hold(1, release))))
	}
	one, _ := w.replica("node-1", nil)
	two, _ := w.replica("node-2", nil)
	one.waitModel(4)
	two.waitModel(4)
	know(t, one, two)
	var wg sync.WaitGroup
	const prompts, burst = 6, 5
	for p := range prompts {
		prompt := strings.Repeat(fmt.Sprintf("%d. What is the meaning of it all? ", p), 6)
		one.begin(&wg, prompt)
		patience.Until(t, "the other one knows", func() bool { return total(two.busy()) == 1+p*(1+2*burst) })
		for range burst {
			one.begin(&wg, prompt)
			two.begin(&wg, prompt)
		}
		patience.Until(t, "all are at workers", func() bool { return total(one.busy()) == (p+1)*(1+2*burst) && total(two.busy()) == (p+1)*(1+2*burst) })
	}
	at := map[string]map[string]int{} // worker -> prompt -> requests
	where := map[string]int{}
	for _, fk := range fakes {
		patience.Until(t, "requests arrive", func() bool { return len(fk.got()) == one.load.InFlight(fk.drt.ID()) })
		at[fk.name] = map[string]int{}
		for _, r := range fk.got() {
			prompt := testProcessor().Decode(r.TokenIDs[:20])
			if at[fk.name][prompt]++; at[fk.name][prompt] == 1 {
				where[prompt]++
			}
		}
	}
	if len(where) != prompts {
		t.Fatalf("prompts are at %v", at)
	}
	for prompt, n := range where {
		if n != 1 {
			t.Errorf("%q is at %d workers: %v", prompt, n, at)
		}
	}
	if len(one.busy()) != 4 {
		t.Errorf("the prompts are at %v", at)
	}
	close(release)
	wg.Wait()
	patience.Until(t, "nothing is counted any more", func() bool { return len(one.busy())+len(two.busy()) == 0 })
}

func total(of map[cluster.InstanceID]int) (n int) {
	for _, m := range of {
		n += m
	}
	return n
}

// A frontend counts the blocks that answers fill, and tells others of them.
func TestOutputIsCounted(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	text := strings.Repeat("abc ", 40)
	output := len(tokens(text)) - 1
	fk := w.fake("worker-1", say(text, hold(output, release)))
	one, _ := w.replica("node-1", nil)
	two, _ := w.replica("node-2", nil)
	one.waitModel(1)
	two.waitModel(1)
	know(t, one, two)
	var wg sync.WaitGroup
	one.beginLong(&wg, "a prompt", 2*output)
	patience.Until(t, "it is at the worker", func() bool { return len(fk.got()) == 1 })
	size := fk.card.BlockSize
	prompt := len(fk.got()[0].TokenIDs)
	if output < 2*size {
		t.Fatalf("%d tokens fill less than two blocks of %d", output, size)
	}
	for _, f := range []*front{one, two} {
		patience.Until(t, "its blocks are counted", func() bool {
			v := router.View{Candidates: []router.Candidate{{ID: fk.drt.ID(), Worker: "worker-1"}}}
			d, err := f.load.Preview(router.Request{BlockSize: size}, v, one.policy().Pick)
			return err == nil && d.Chosen.ActiveBlocks >= (prompt+output)/size
		})
	}
	close(release)
	wg.Wait()
	patience.Until(t, "nothing is counted any more", func() bool { return len(one.busy())+len(two.busy()) == 0 })
}

// The requests of a frontend that is killed are counted no more.
func TestKilledFrontend(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	fk := w.fake("worker-1", say("abc", hold(1, release)))
	one, kill := w.replica("node-1", nil)
	two, _ := w.replica("node-2", nil)
	one.waitModel(1)
	two.waitModel(1)
	know(t, one, two)
	var wg sync.WaitGroup
	for i := range 3 {
		one.begin(&wg, fmt.Sprint(i))
	}
	two.begin(&wg, "mine")
	_, hop, err := one.prefillLoad.Choose(router.Request{PromptTokens: 9, BlockSize: 16}, router.View{Candidates: []router.Candidate{{ID: 9, Worker: "prefill"}}}, one.policy().Pick)
	if err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "they are counted", func() bool {
		return two.load.InFlight(fk.drt.ID()) == 4 && two.prefillLoad.InFlight(9) == 1
	})
	kill()
	patience.Until(t, "they are counted no more", func() bool {
		return two.load.InFlight(fk.drt.ID()) == 1 && two.prefillLoad.InFlight(9) == 0
	})
	close(release)
	wg.Wait()
	hop.End()
}

// A draining frontend is counted until its last request has ended.
func TestDrainingFrontendIsCounted(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	fk := w.fake("worker-1", say("abc", hold(1, release)))
	one, _ := w.replica("node-1", nil)
	two, _ := w.replica("node-2", nil)
	one.waitModel(1)
	know(t, one, two)
	var wg sync.WaitGroup
	one.begin(&wg, "x")
	patience.Until(t, "it is counted", func() bool { return two.load.InFlight(fk.drt.ID()) == 1 })
	drained := make(chan error, 1)
	go func() { drained <- one.Drain(t.Context()) }()
	https := runtimetest.Client(t, two.cfg.Runtime, cluster.ComponentFrontend, cluster.EndpointHTTP)
	patience.Until(t, "it has left discovery", func() bool { return len(https.All()) == 1 })
	if err := https.WaitGone(t.Context(), one.cfg.Runtime.ID()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if two.load.InFlight(fk.drt.ID()) != 1 {
			t.Fatal("a request that runs is not counted")
		}
	}
	close(release)
	wg.Wait()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if err := one.stop(); err != nil {
		t.Error(err)
	}
	patience.Until(t, "it is gone", func() bool { return len(two.replicaSync().Frontends) == 0 && two.load.InFlight(fk.drt.ID()) == 0 })
}

// Frontends that do not share say so, once, and count only their own requests.
func TestReplicaSyncOff(t *testing.T) {
	for _, tc := range []struct {
		why    string
		change func(*world) func(*Config)
	}{
		{offBySetting, func(*world) func(*Config) { return func(c *Config) { c.NoReplicaSync = true } }},
		{offWithout, func(w *world) func(*Config) {
			return func(c *Config) { c.Runtime = w.runtime("node-2", func(r *runtime.Config) { r.Bus = nil }) }
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			w := newWorld(t)
			release := make(chan struct{})
			fk := w.fake("worker-1", say("abc", hold(1, release)))
			one, _ := w.replica("node-1", nil)
			two, _ := w.replica("node-2", tc.change(w))
			one.waitModel(1)
			two.waitModel(1)
			var wg sync.WaitGroup
			one.begin(&wg, "x")
			two.begin(&wg, "x")
			patience.Until(t, "they are at the worker", func() bool { return len(fk.got()) == 2 })
			calls := runtimetest.Client(t, one.cfg.Runtime, cluster.ComponentFrontend, cluster.EndpointKVIndex)
			told := map[string]*cluster.ReplicaSync{}
			for _, inst := range waitInstances(t, calls, 2) {
				stream, err := calls.Call(t.Context(), inst, "r", nil, protocol.KVIndexRequest{})
				if err != nil {
					t.Fatal(err)
				}
				var x cluster.KVIndex
				if err := stream.Recv(t.Context(), &x); err != nil {
					t.Fatal(err)
				}
				stream.Close()
				told[x.Frontend] = x.ReplicaSync
			}
			if told["node-1"] == nil || told["node-1"].Off != "" || told["node-2"] == nil || told["node-2"].Off != tc.why {
				t.Errorf("reported %+v and %+v", told["node-1"], told["node-2"])
			}
			if a, b := one.load.InFlight(fk.drt.ID()), two.load.InFlight(fk.drt.ID()); a != 1 || b != 1 {
				t.Errorf("counted %d and %d", a, b)
			}
			if n := w.log.count(tc.why); n != 1 {
				t.Errorf("logged %d times", n)
			}
			close(release)
			wg.Wait()
		})
	}
}

func waitInstances(t *testing.T, c *runtime.Client, n int) []cluster.Instance {
	t.Helper()
	patience.Until(t, "they are in discovery", func() bool { return len(c.Instances()) == n })
	return c.Instances()
}
