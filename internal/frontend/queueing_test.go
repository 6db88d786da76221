package frontend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// narrow runs a worker that takes two requests at a time, and answers one each time
// something is sent to the channel.
func narrow(w *world) (*fake, chan struct{}) {
	release := make(chan struct{})
	return w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		select {
		case <-release:
			return say("abc")(ctx, req, send)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func(fk *fake) { fk.card.Runtime.MaxNumSeqs = 1 }), release
}

// waiting returns how many sequences of the test model wait at the frontend.
func (f *front) waiting() (n int) {
	f.admission.mu.Lock()
	defer f.admission.mu.Unlock()
	if g := f.admission.gates[testModel]; g != nil {
		_, n = g.Counts()
	}
	return n
}

// Of the waiting requests of a client, those of higher priority go first, by body or
// header; priorities beyond the bounds count as the bounds.
func TestPriorities(t *testing.T) {
	w := newWorld(t)
	fk, release := narrow(w)
	f := w.frontend().waitModel(1)
	var wg sync.WaitGroup
	post := func(prompt string, hints body, headers ...string) {
		b := body{"prompt": prompt}
		if hints != nil {
			b["nvext"] = body{"agent_hints": hints}
		}
		wg.Go(func() {
			_ = wholeAnswer(t, f.do(http.MethodPost, "/v1/completions", reader(t, textBody(b)), headers...))
		})
	}
	post("first", nil)
	post("second", nil)
	patience.Until(t, "both are at the worker", func() bool { return fk.running.Load() == 2 })
	want := []string{"most", "header", "strict", "also strict", "none", "low", "least"}
	for i, r := range []struct {
		prompt  string
		hints   body
		headers []string
	}{
		{"least", body{"priority": -1 << 31}, nil},
		{"low", body{"priority": -7}, nil},
		{"none", body{"osl": 5, "speculative_prefill": true, "latency_sensitivity": 0.5}, nil},
		{"strict", body{"priority": -8, "strict_priority": 3}, nil},
		{"header", body{"priority": 1}, []string{"x-dynamo-request-priority", "7"}},
		{"also strict", body{"priority": 8}, []string{"x-dynamo-request-strict-priority", "3"}},
		{"most", body{"priority": 1<<31 - 1}, nil},
	} {
		post(r.prompt, r.hints, r.headers...)
		patience.Until(t, r.prompt+" waits", func() bool { return f.waiting() == i+1 })
	}
	for i := range 9 {
		release <- struct{}{}
		patience.Until(t, "the next one is at the worker", func() bool { return len(fk.got()) == min(3+i, 9) })
	}
	wg.Wait()
	var got []string
	for _, req := range fk.got()[2:] {
		got = append(got, testProcessor().Decode(req.TokenIDs))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("served %q, want %q", got, want)
	}
}

// When a request is due follows from its arrival, its priority and, where short prompts go
// first, from what is not in a cache.
func TestDue(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("abc"))
	s := routing()
	f := w.routed(s, 0, 1)
	m := f.registry.find(testModel)
	cached := make([]uint32, 10*testBlock)
	chain := f.newGeneration(m, protocol.PreprocessedRequest{TokenIDs: cached}, nil).routed().Hashes
	f.caches.index.Store(fk.drt.ID(), kvindex.Device, chain[:8])
	ptr := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		name    string
		policy  string
		after   time.Duration
		q       queueing
		lengths []int
		choices int // of each prompt
		want    float64
	}{
		{"in order of arrival", "fcfs", 5 * time.Second, queueing{}, []int{100}, 1, 5},
		{"a priority", "fcfs", 5 * time.Second, queueing{priority: ptr(2)}, []int{100}, 1, -15},
		{"a low priority", "fcfs", 5 * time.Second, queueing{priority: ptr(-100)}, []int{100}, 1, 85},
		{"vLLM's priority", "fcfs", 5 * time.Second, queueing{place: ptr(-2)}, []int{100}, 1, -15},
		{"a hint wins over it", "fcfs", 5 * time.Second, queueing{place: ptr(-2), priority: ptr(1)}, []int{100}, 1, -5},
		{"strict wins", "fcfs", 5 * time.Second, queueing{priority: ptr(-100), strict: ptr(1)}, []int{100}, 1, -5},
		{"by length", "wspt", 5 * time.Second, queueing{}, []int{100}, 1, 5.1},
		{"by length and priority", "wspt", 5 * time.Second, queueing{priority: ptr(1)}, []int{100}, 1, -4.9},
		{"by what is not cached", "wspt", 5 * time.Second, queueing{}, []int{10 * testBlock}, 1, 5.032},
		{"by the mean of the choices", "wspt", 5 * time.Second, queueing{}, []int{100, 60}, 2, 5.040},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.change(func(k *Settings) { k.QueuePolicy = tc.policy })
			j := &job{f: f.Frontend, arrived: f.admission.begin.Add(tc.after), queueing: tc.q}
			for i, n := range tc.lengths {
				for range tc.choices {
					ids := cached[:min(n, len(cached))]
					if n%testBlock != 0 {
						ids = tokens(strings.Repeat("x", n))
					}
					j.choices = append(j.choices, &choice{prompt: i, gen: f.newGeneration(m, protocol.PreprocessedRequest{TokenIDs: ids}, nil)})
				}
			}
			if got := j.due(); got < tc.want-1e-6 || got > tc.want+1e-6 {
				t.Errorf("due at %v s, want %v", got, tc.want)
			}
		})
	}
}

// A request whose deadline passes while it waits is refused and never computed; one that
// gets its turn in time is answered, however long that takes.
func TestDeadline(t *testing.T) {
	w := newWorld(t)
	fk, release := narrow(w)
	f := w.frontend().waitModel(1)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_ = wholeAnswer(t, f.post("/v1/completions", textBody(body{"nvext": body{"agent_hints": body{"deadline_ms": 10_000}}})))
		})
	}
	patience.Until(t, "both are at the worker", func() bool { return fk.running.Load() == 2 })
	for _, streamed := range []bool{false, true} {
		resp := f.post("/v1/completions", textBody(body{"stream": streamed, "nvext": body{"agent_hints": body{"deadline_ms": 50}}}))
		if e := failureOf(t, resp); resp.StatusCode != http.StatusGatewayTimeout || e.code() != "deadline_exceeded" || !strings.Contains(e.Error.Message, "nothing was computed") {
			t.Errorf("status %d, %+v", resp.StatusCode, e)
		}
	}
	const refused = `dynamo_frontend_refused_requests_total{model="tiny",reason="deadline"}`
	patience.Until(t, "both count", func() bool { return f.metric(refused) == 2 })
	if n := f.waiting(); n != 0 {
		t.Errorf("%d wait", n)
	}
	for range 2 {
		release <- struct{}{}
	}
	wg.Wait()
	if n := len(fk.got()); n != 2 {
		t.Errorf("the worker got %d requests, want 2", n)
	}
	// The deadline has passed before there is a place.
	j := &job{f: f.Frontend, arrived: time.Now().Add(-time.Second), queueing: queueing{deadline: time.Millisecond}, choices: []*choice{{}}, prompts: []int{3}}
	if err := j.admit(f.registry.find(testModel)); err != nil {
		t.Fatal(err)
	}
	defer j.choices[0].pass.Leave()
	if err := j.enter(t.Context(), j.choices[0]); !errors.Is(err, errDeadline) {
		t.Errorf("got %v", err)
	}
	for field, hints := range map[string]body{"deadline_ms": {"deadline_ms": 0}, "priority": {"priority": "high"}, "strict_priority": {"strict_priority": -1}, "mood": {"mood": 1}} {
		if e := failureOf(t, f.post("/v1/completions", textBody(body{"nvext": body{"agent_hints": hints}}))); !strings.Contains(e.param(), "nvext.agent_hints."+field) {
			t.Errorf("%v: %+v", hints, e)
		}
	}
}
