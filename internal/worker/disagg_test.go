package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// The same prompts give the same tokens whoever prefills, over every transport.
func TestDisaggregatedEqualsAggregated(t *testing.T) {
	for _, tc := range []struct {
		name            string
		prefill, decode int
		tcp             bool
		force           string
	}{
		{name: "aggregated", decode: 1},
		{name: "1+1 local", prefill: 1, decode: 1},
		{name: "1+1 tcp", prefill: 1, decode: 1, tcp: true},
		{name: "2+3 tcp", prefill: 2, decode: 3, tcp: true},
		{name: "1+1 forced local", prefill: 1, decode: 1, force: "local"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			w.tcp = tc.tcp
			for i := range tc.prefill {
				w.start(fmt.Sprint("worker-", i+1), cluster.RolePrefill)
			}
			var decodes []*running
			for i := range tc.decode {
				decodes = append(decodes, w.start(fmt.Sprint("worker-", tc.prefill+i+1), cluster.RoleDecode))
			}
			eventually(t, "all are found", func() bool { return len(w.calls.Instances()) == tc.decode })
			if tc.prefill > 0 {
				for _, d := range decodes {
					eventually(t, "decode workers see the prefill workers", func() bool { return len(d.sees(cluster.RolePrefill)) == tc.prefill })
				}
			}
			shared := prompt(r, 40)
			var wg sync.WaitGroup
			for i, n := range []int{1, 2, 15, 16, 17, 31, 33, 64, 65, 130, 400, 40, 90, 90} {
				p := prompt(r, n)
				if i%3 == 1 {
					p = append(append([]uint32{}, shared...), p...)
				}
				wg.Go(func() {
					req := request(fmt.Sprint("r", i), p, 12)
					req.Disagg.Force = tc.force
					got := w.generate(t.Context(), decodes[i%len(decodes)].Name(), req)
					check(t, got, p, 12)
					if got.usage == nil || got.usage.PromptTokens != len(p) || got.usage.CompletionTokens != 12 {
						t.Errorf("usage %+v for a prompt of %d", got.usage, len(p))
					}
					remote := tc.prefill > 0 && tc.force == "" && n > 17
					if remote && (got.timing == nil || !strings.HasPrefix(got.timing.Prefill, "worker-")) {
						t.Errorf("prompt of %d was prefilled by %+v, want a prefill worker", len(p), got.timing)
					}
				})
			}
			wg.Wait()
			if tc.prefill == 0 || tc.force != "" {
				return
			}
			var remote uint64
			for _, d := range decodes {
				st := d.Status().Stats
				remote += st.RemotePrefillTotal
				if st.FallbackTotal > 0 {
					t.Errorf("%s fell back %d times", d.Name(), st.FallbackTotal)
				}
			}
			if remote == 0 {
				t.Error("no prompt was prefilled remotely: the case tests nothing")
			}
		})
	}
}

// slowPrefill makes prompts take long enough to be interrupted.
func slowPrefill(o *mock.Options) {
	o.StepTime = func(prompt, _ int) time.Duration { return time.Duration(prompt) * time.Millisecond / 2 }
}

func TestFallbacks(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings func(*Settings)
		setup    func(*world)
		force    string
		why      string
	}{
		{name: "no prefill worker", why: "no prefill worker"},
		{name: "short prompt", setup: func(w *world) { w.start("worker-1", cluster.RolePrefill) },
			settings: func(k *Settings) { k.Prefill.MaxLocalTokens = 1000 }, why: "short"},
		{name: "queue full by setting", setup: func(w *world) { w.start("worker-1", cluster.RolePrefill) },
			settings: func(k *Settings) { k.Prefill.MaxQueueDepth = 0 }, why: "queue full"},
		{name: "timeout", setup: func(w *world) {
			slowPrefill(&w.opts)
			w.start("worker-1", cluster.RolePrefill)
			w.opts.StepTime = nil
		}, settings: func(k *Settings) { k.RemoteTimeout = 30 * time.Millisecond }, why: "remote prefill timed out"},
		{name: "model mismatch", setup: func(w *world) {
			w.start("worker-1", cluster.RolePrefill, otherModel)
		}, why: "prefill worker failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			if tc.setup != nil {
				tc.setup(w)
			}
			if tc.settings != nil {
				w.putSettings(tc.settings)
			}
			d := w.start("worker-9", cluster.RoleDecode)
			if tc.setup != nil {
				eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
			}
			p := prompt(r, 200)
			got := w.generate(t.Context(), "", request("a", p, 8))
			check(t, got, p, 8)
			if got.timing == nil || got.timing.Prefill != "local" || got.timing.PrefillWhy != tc.why {
				t.Errorf("timing %+v, want local because %q", got.timing, tc.why)
			}
			eventually(t, "no blocks in use", func() bool { return d.engine().Check(t.Context(), true) == nil })
			w.noDeadLetters()
		})
	}
}

// otherModel has a worker serve another model than the others.
func otherModel(c *Config) {
	load := c.Load
	c.Load = func(ctx context.Context, p func(float64)) (*Loaded, error) {
		l, err := load(ctx, p)
		l.Card.Digest = otherDigest
		return l, err
	}
}

const otherDigest = "sha256:other"

// noDeadLetters checks that no prompt was given up.
func (w *world) noDeadLetters() {
	w.t.Helper()
	if depth, err := w.queue.Depth(w.t.Context()); err != nil || depth.DeadLettered != 0 {
		w.t.Errorf("the queue has %+v, %v", depth, err)
	}
}

// While a model is rolled out, workers of two models pull from one queue: a prompt is
// prefilled by a worker of its own model, or by its decode worker, and none is given up.
func TestTwoModelsShareAQueue(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.start("worker-1", cluster.RolePrefill)
	w.start("worker-2", cluster.RolePrefill, otherModel)
	models := map[string]struct{ sum, prefill string }{"worker-3": {digest, "worker-1"}, "worker-4": {otherDigest, "worker-2"}}
	for _, d := range []*running{w.start("worker-3", cluster.RoleDecode), w.start("worker-4", cluster.RoleDecode, otherModel)} {
		eventually(t, "both prefill workers are seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 2 })
	}
	var mu sync.Mutex
	remote := map[string]int{}
	var wg sync.WaitGroup
	for i := range 40 {
		name, p := fmt.Sprint("worker-", 3+i%2), prompt(r, 100)
		wg.Go(func() {
			req := request(fmt.Sprint("r", i), p, 8)
			req.ModelSum = models[name].sum
			got := w.generate(t.Context(), name, req)
			check(t, got, p, 8)
			switch {
			case got.timing == nil || got.timing.Prefill != "local" && got.timing.Prefill != models[name].prefill:
				t.Errorf("%s: timing %+v", name, got.timing)
			case got.timing.Prefill != "local":
				mu.Lock()
				defer mu.Unlock()
				remote[name]++
			}
		})
	}
	wg.Wait()
	w.noDeadLetters()
	if len(remote) != 2 {
		t.Errorf("prefilled by workers of the same model: %v", remote)
	}
}

// A prefill worker that dies in the middle is noticed by its broken connection;
// one that dies with a message in hand has it redelivered.
func TestPrefillWorkerDies(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	w.tcp = true
	slowPrefill(&w.opts)
	p1 := w.start("worker-1", cluster.RolePrefill)
	p2 := w.start("worker-2", cluster.RolePrefill)
	w.opts.StepTime = nil
	d := w.start("worker-3", cluster.RoleDecode)
	eventually(t, "prefill workers are seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 2 })
	for _, p := range []*running{p1, p2} { // otherwise one may do all before the other has proven its path
		eventually(t, "the path to the decode worker is proven", func() bool { return meets(p.term.Load().peers.Meet(t.Context(), d.nixl().Name(), nil)) })
	}

	var wg sync.WaitGroup
	for i := range 8 {
		p := prompt(r, 300+i)
		wg.Go(func() { check(t, w.generate(t.Context(), "", request(fmt.Sprint("r", i), p, 6)), p, 6) })
	}
	eventually(t, "both prefill workers compute", func() bool {
		return p1.Status().Stats.Running > 0 && p2.Status().Stats.Running > 0
	})
	p1.queue.Kill() // its acknowledgements no longer reach anyone
	_ = p1.stop(errors.New("killed"))
	wg.Wait()
	st := d.Status().Stats
	if st.RequestsTotal != 8 || st.FinishedTotal != 8 {
		t.Errorf("decode worker counts %d requests, %d finished, want 8 and 8", st.RequestsTotal, st.FinishedTotal)
	}
	if got := st.RemotePrefillTotal + st.FallbackTotal; got != 8 {
		t.Errorf("%d remote prefills and %d fallbacks, want 8 together", st.RemotePrefillTotal, st.FallbackTotal)
	}
	if st.RemotePrefillTotal == 0 || st.FallbackTotal == 0 {
		t.Logf("note: %d remote, %d fallback", st.RemotePrefillTotal, st.FallbackTotal)
	}
}

// A client that leaves during a remote prefill frees everything at both ends.
func TestCancelDuringRemotePrefill(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	slowPrefill(&w.opts)
	pre := w.start("worker-1", cluster.RolePrefill)
	w.opts.StepTime = nil
	d := w.start("worker-2", cluster.RoleDecode)
	eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan result, 1)
	go func() { done <- w.generate(ctx, "", request("a", prompt(r, 1500), 5)) }()
	eventually(t, "the prefill runs", func() bool { return pre.Status().Stats.Running == 1 })
	cancel()
	if got := <-done; got.err == nil {
		t.Error("the cancelled request ended well")
	}
	idle(t, pre, d)
	eventually(t, "the queue is empty", func() bool {
		depth, err := w.queue.Depth(t.Context())
		return err == nil && depth == events.Depth{}
	})
}

// Without the queue a prefill worker is asked directly.
func TestQueueUnavailable(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.start("worker-1", cluster.RolePrefill)
	d := w.start("worker-2", cluster.RoleDecode, func(c *Config) { c.Queue = deadQueue{c.Queue} })
	eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	p := prompt(r, 100)
	got := w.generate(t.Context(), "", request("a", p, 8))
	check(t, got, p, 8)
	if got.timing == nil || got.timing.Prefill != "worker-1" {
		t.Errorf("prefilled by %+v, want worker-1", got.timing)
	}
}

// Without the queue nobody else spreads prompts over the prefill workers.
func TestDirectCallsAreSpread(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.opts.StepTime = func(int, int) time.Duration { return 5 * time.Millisecond }
	names := []string{"worker-1", "worker-2", "worker-3"}
	for _, name := range names {
		w.start(name, cluster.RolePrefill)
	}
	d := w.start("worker-4", cluster.RoleDecode, func(c *Config) { c.Queue = deadQueue{c.Queue} })
	eventually(t, "all prefill workers are seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 3 })
	var mu sync.Mutex
	by := map[string]int{}
	var wg sync.WaitGroup
	for i := range 30 {
		p := prompt(r, 100)
		wg.Go(func() {
			got := w.generate(t.Context(), "worker-4", request(fmt.Sprint("r", i), p, 2))
			check(t, got, p, 2)
			mu.Lock()
			defer mu.Unlock()
			by[got.timing.Prefill]++
		})
	}
	wg.Wait()
	for _, name := range names {
		if by[name] < 5 {
			t.Errorf("%s prefilled %d of 30 prompts that came at once: %v", name, by[name], by)
		}
	}
	eventually(t, "no call is open", func() bool { return d.term.Load().duty.Idle() == nil })
}

type deadQueue struct{ events.WorkQueue }

func (deadQueue) Enqueue(context.Context, string, []byte) error { return events.ErrUnavailable }

// A request whose message nobody fetched does not wait for its deadline once the
// queue is out of reach.
func TestQueueIsLost(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.start("worker-1", cluster.RolePrefill)
	d := w.start("worker-2", cluster.RoleDecode, func(c *Config) { c.Queue, c.Bus = lostQueue{c.Queue}, lostBus{c.Bus} })
	eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon/2) // half the deadline
	defer cancel()
	p := prompt(r, 100)
	got := w.generate(ctx, "", request("a", p, 8))
	check(t, got, p, 8)
	if got.timing == nil || got.timing.Prefill != "local" || got.timing.PrefillWhy != "queue unreachable" {
		t.Errorf("timing %+v", got.timing)
	}
}

// lostQueue accepts messages that nobody gets.
type lostQueue struct{ events.WorkQueue }

func (lostQueue) Enqueue(context.Context, string, []byte) error { return nil }

type lostBus struct{ events.Bus }

func (lostBus) Connected() bool { return false }

// Workers whose blocks mean something else do not exchange them: the decode worker
// computes the prompt itself.
func TestKVTypesDiffer(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.start("worker-1", cluster.RolePrefill, func(c *Config) {
		load := c.Load
		c.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
			l, err := load(ctx, progress)
			opts := w.opts
			opts.KVDType = "int8"
			l.Backend = mock.New(opts)
			return l, err
		}
	})
	d := w.start("worker-2", cluster.RoleDecode)
	eventually(t, "prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	p := prompt(r, 100)
	got := w.generate(t.Context(), "", request("a", p, 8))
	check(t, got, p, 8)
	if got.timing == nil || got.timing.Prefill != "local" || got.timing.PrefillWhy != "prefill worker failed" {
		t.Errorf("timing %+v", got.timing)
	}
}

func TestGenerateRefuses(t *testing.T) {
	w := newWorld(t)
	w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	bad := request("a", []uint32{1}, 1)
	bad.ModelSum = "sha256:other"
	for name, req := range map[string]protocol.PreprocessedRequest{
		"digest":   bad,
		"empty":    request("b", nil, 1),
		"too long": request("c", make([]uint32, 2048), 1),
		"token":    request("d", []uint32{vocab}, 1),
	} {
		t.Run(name, func(t *testing.T) {
			got := w.generate(t.Context(), "", req)
			want := requestplane.KindInvalidArgument
			if name == "digest" { // another worker may have the right one
				want = requestplane.KindUnavailable
			}
			var remote *requestplane.RemoteError
			if !errors.As(got.err, &remote) || remote.Kind != want {
				t.Errorf("got %v, want %s", got.err, want)
			}
		})
	}
}

// meets lets go of a path that was proven.
func meets(leave func(), err error) bool {
	if err == nil {
		leave()
	}
	return err == nil
}
