package clustertest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
)

// told is all that a client is told over a stream, put together.
type told struct {
	Texts    map[int]string
	Finish   map[int]string
	Logprobs map[int]logprobs
	Usage    map[string]any
}

type logprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// listen streams a completion and also measures the longest time between two events.
func listen(ctx context.Context, c *clustertest.Cluster, body clustertest.Body) (got told, gap time.Duration, err error) {
	return follow(ctx, c, body, func() {})
}

// follow is listen, and calls each after every event. What was told until ctx ended comes with
// the error.
func follow(ctx context.Context, c *clustertest.Cluster, body clustertest.Body, each func()) (got told, gap time.Duration, err error) {
	got = told{Texts: map[int]string{}, Finish: map[int]string{}, Logprobs: map[int]logprobs{}}
	body["model"], body["stream"], body["stream_options"] = c.Model, true, map[string]any{"include_usage": true}
	resp, err := c.Post(ctx, "/v1/completions", body)
	if err != nil {
		return got, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		return got, 0, fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	var last time.Time
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		switch {
		case !ok:
			continue
		case data == "[DONE]":
			return got, gap, nil
		}
		now := time.Now()
		if !last.IsZero() {
			gap = max(gap, now.Sub(last))
		}
		last = now
		if err := got.take(data); err != nil {
			return got, gap, err
		}
		each()
	}
	return got, gap, errors.Join(errors.New("the stream broke off"), sc.Err())
}

func (g *told) take(data string) error {
	var e struct {
		Choices []struct {
			Index    int
			Text     string
			Logprobs *logprobs
			Finish   string `json:"finish_reason"`
		}
		Usage map[string]any
		Error json.RawMessage
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil || e.Error != nil {
		return fmt.Errorf("event %s: %w", data, err)
	}
	if e.Usage != nil {
		g.Usage = e.Usage
		delete(g.Usage, "prompt_tokens_details") // what is cached depends on what ran before
	}
	for _, ch := range e.Choices {
		g.Texts[ch.Index] += ch.Text
		if ch.Finish != "" {
			g.Finish[ch.Index] = ch.Finish
		}
		if lp := ch.Logprobs; lp != nil {
			all := g.Logprobs[ch.Index]
			all.Tokens, all.TokenLogprobs = append(all.Tokens, lp.Tokens...), append(all.TokenLogprobs, lp.TokenLogprobs...)
			all.TopLogprobs, all.TextOffset = append(all.TopLogprobs, lp.TopLogprobs...), append(all.TextOffset, lp.TextOffset...)
			g.Logprobs[ch.Index] = all
		}
	}
	return nil
}

// demanding are requests that use what a sequence carries along.
func demanding(tokens int) []clustertest.Body {
	list := json.RawMessage(fmt.Sprintf(`{"type":"array","items":{"enum":["alpha","beta","gamma"]},"minItems":%d}`, tokens))
	var out []clustertest.Body
	for i, p := range texts(12, 60) {
		b := clustertest.Body{"prompt": p, "max_tokens": tokens, "temperature": 1, "seed": 100 + i, "ignore_eos": true}
		switch i % 6 {
		case 0:
			b["temperature"] = 0
		case 1:
			b["repetition_penalty"], b["frequency_penalty"], b["presence_penalty"] = 1.1, 0.4, 0.2
		case 2:
			b["logprobs"] = 3
		case 3:
			b["guided_json"] = list
		case 4:
			b["n"], b["top_p"] = 2, 0.9
		case 5:
			b["min_tokens"], b["logit_bias"] = tokens, map[string]any{"65": 5, "66": -5}
		}
		out = append(out, b)
	}
	return out
}

// all listens to all requests at once.
func all(t *testing.T, c *clustertest.Cluster, bodies []clustertest.Body) (got []told, gap time.Duration) {
	t.Helper()
	got = make([]told, len(bodies))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, b := range bodies {
		wg.Go(func() {
			answer, longest, err := listen(t.Context(), c, b)
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[i], gap = answer, max(gap, longest)
		})
	}
	wg.Wait()
	return got, gap
}

// A busy decode worker is drained and resumed, then the other one: every sequence
// moves, and every client gets exactly what it gets when nothing happens.
func TestDrainHandsOver(t *testing.T) {
	t.Parallel()
	dir := mediumModel(t)
	bodies := demanding(1000 / slowdown)
	other := ranksOf(cluster.RoleDecode, 2)
	other.Process = true
	var want []told // of the first cluster: tokens do not depend on nodes or degrees
	for _, tc := range []struct {
		name, transport string
		nodes           []clustertest.Node
		force           []string
	}{
		{name: "in one process", transport: "local"},
		{name: "over tcp", transport: "tcp", force: []string{"tcp"}},
		{name: "between degrees, over shared memory", transport: sameHost, nodes: []clustertest.Node{ranksOf(cluster.RoleDecode, 1), other}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() && tc.transport != "local" {
				t.Skip("the transports have short suites of their own")
			}
			c := clustertest.Start(t, clustertest.Options{
				Model: dir, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 4096}, Nodes: tc.nodes,
				Config: func(cfg *config.Dynamod) {
					cfg.Router.Policy = "round-robin"
					cfg.NIXL.Transports = tc.force
				},
			})
			var usual time.Duration
			if want == nil {
				want, usual = all(t, c, bodies)
			}
			before := settledCounts(t, c)

			asking := ask(t, c, bodies, want)
			for i, name := range []string{"worker-1", "worker-2"} {
				if i > 0 { // the first one is back
					c.WaitReady(0, 2)
				}
				// Clients ask again and again, so that something runs at any time; what ran
				// when the drain began may all the same end before it could move.
				for drainMoves(t, c, name).Moved == 0 {
					resume(t, c, name)
					c.WaitReady(0, 2)
				}
				if tc.nodes == nil || nodeOf(c, name) != c.Nodes[0].ID { // to a worker whose metrics are read
					wantTransport(t, c, tc.transport)
				}
				if i == 0 {
					resume(t, c, name)
				}
			}
			n, gap := asking.end()
			t.Logf("longest gap of %d streams: %s, undisturbed %s (0: not measured here)", n, gap.Round(time.Millisecond), usual.Round(time.Millisecond))
			counted(t, c, before, n)
			if n := strings.Count(c.Metrics(), `dynamo_frontend_model_migration_total{`); n > 0 {
				t.Errorf("sequences were computed again:\n%s", c.Metrics())
			}
		})
	}
}

// asking are clients that ask the same again and again.
type asking struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu  sync.Mutex
	n   int
	gap time.Duration
}

// ask has a client for each of bodies, all at once, who must always be told the same.
func ask(t *testing.T, c *clustertest.Cluster, bodies []clustertest.Body, want []told) *asking {
	a := &asking{stop: make(chan struct{})}
	t.Cleanup(a.wg.Wait) // for tests that end early
	for i, b := range bodies {
		a.wg.Go(func() {
			for {
				got, gap, err := listen(t.Context(), c, maps.Clone(b))
				if err != nil || !reflect.DeepEqual(got, want[i]) {
					t.Errorf("stream %d (%v): got\n%+v\nwant\n%+v (%v)", i, b, got, want[i], err)
				}
				a.mu.Lock()
				a.n, a.gap = a.n+1, max(a.gap, gap)
				a.mu.Unlock()
				select {
				case <-a.stop:
					return
				default:
				}
				if err != nil {
					return
				}
			}
		})
	}
	return a
}

// end has the clients stop after the answer that they listen to. It returns how many there
// were, and the longest time between two events.
func (a *asking) end() (n int, gap time.Duration) {
	close(a.stop)
	a.wg.Wait()
	return a.n, a.gap
}

// drainMoves drains a busy worker and returns what became of its sequences.
func drainMoves(t *testing.T, c *clustertest.Cluster, name string) (d cluster.DrainStatus) {
	t.Helper()
	busy(t, c, name)
	begin := time.Now()
	if err := c.Client.Drain(t.Context(), name, time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
	c.WaitView(name+" is drained", func(v client.View) bool {
		for _, w := range v.Workers() {
			if w.Name == name && w.State == cluster.StateDrained && w.Drain != nil {
				d = *w.Drain
				return true
			}
		}
		return false
	})
	t.Logf("%s drained in %s: %d finished, %d moved, %d cancelled", name, time.Since(begin).Round(time.Millisecond), d.Finished, d.Moved, d.Cancelled)
	if d.Cancelled > 0 {
		t.Errorf("%s: %+v, want sequences moved", name, d)
	}
	return d
}

func resume(t *testing.T, c *clustertest.Cluster, name string) {
	t.Helper()
	if err := c.Client.Resume(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// nodeOf is the node of a worker.
func nodeOf(c *clustertest.Cluster, name string) string {
	for _, w := range c.Watch.View().Workers() {
		if w.Name == name {
			return w.Node
		}
	}
	return ""
}

// busy waits until a worker is in the middle of several answers.
func busy(t *testing.T, c *clustertest.Cluster, name string) {
	t.Helper()
	c.WaitView(name+" is busy", func(client.View) bool {
		for _, st := range c.LiveStats() {
			if st.Name == name && st.Stats.Running > 3 {
				return true
			}
		}
		return false
	})
}
