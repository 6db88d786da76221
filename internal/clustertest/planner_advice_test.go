package clustertest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/planner"
)

// planned are the reports of planners on the event plane, oldest first.
type planned struct {
	mu   sync.Mutex
	told []planner.Report
}

func hearPlanners(t *testing.T, c *clustertest.Cluster) *planned {
	t.Helper()
	bus, err := c.Client.Bus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	p := &planned{}
	_, err = bus.Subscribe(t.Context(), events.Subject(cluster.DefaultNamespace, "*", cluster.TopicPlanner), func(e events.Event) {
		var r planner.Report
		if err := e.Decode(&r); err != nil || e.Missed > 0 {
			t.Errorf("%d reports are missing before %+v: %v", e.Missed, r, err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = append(p.told, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *planned) all() []planner.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told[:len(p.told):len(p.told)]
}

// until waits for a report.
func (p *planned) until(t *testing.T, what string, ok func(planner.Report) bool) planner.Report {
	t.Helper()
	from := 0
	for end := time.Now().Add(patience.Soon); ; time.Sleep(5 * time.Millisecond) {
		all := p.all()
		for ; from < len(all); from++ {
			if ok(all[from]) {
				return all[from]
			}
		}
		if time.Now().After(end) {
			last := "none"
			if n := len(all); n > 0 {
				b, _ := json.Marshal(all[n-1])
				last = string(b)
			}
			t.Fatalf("no report in which %s; %d came, the last is %s", what, len(all), last)
		}
	}
}

// measured is what clients measured.
type measured struct {
	mu                       sync.Mutex
	requests, prompt, output int
	first, whole             time.Duration // from the request to the first text and to the end, summed
}

// ask sends one request of so many tokens and measures the answer.
func (l *measured) ask(ctx context.Context, c *clustertest.Cluster, seed, prompt, output int) error {
	tokens := make([]int, prompt)
	for i := range tokens {
		tokens[i] = (seed*7919 + i*31 + i*i) % 256
	}
	began := time.Now()
	resp, err := c.Post(ctx, "/v1/completions", clustertest.Body{"model": c.Model, "prompt": tokens, "max_tokens": output, "temperature": 0, "ignore_eos": true, "stream": true})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	var first, whole time.Duration
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		switch line := sc.Text(); {
		case line == "data: [DONE]":
			whole = time.Since(began)
		case strings.HasPrefix(line, "data: ") && first == 0:
			first = time.Since(began)
		}
	}
	if whole == 0 {
		return errors.New("the stream broke off")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests, l.prompt, l.output = l.requests+1, l.prompt+prompt, l.output+output
	l.first, l.whole = l.first+first, l.whole+whole
	return nil
}

// The planner of a cluster that serves: its windows add up to what clients sent, its latencies are between
// those that clients measured and the time that the engine computed, and it advises. When the node that
// leads is killed, another one goes on, and only that one has metrics.
func TestPlannerAdvises(t *testing.T) {
	if patience.RaceDetector {
		t.Skip("package planner/live runs with the race detector; here, it would plan for workers that are that slow")
	}
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Decode: 1, LeaseTTL: faultTTL, Nodes: []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}},
	})
	c.Set(map[string]any{"planner.interval": "1s"})
	c.Lead(1)
	told := hearPlanners(t, c)
	told.until(t, "node-2 leads and nothing has arrived", func(r planner.Report) bool { return r.Node == "node-2" && r.Observed.Arrived == 0 })
	if strings.Contains(c.Metrics(), "dynamo_planner_") {
		t.Error("a node that does not lead has metrics of the planner")
	}

	before := computed(c)
	// A light load of known lengths, until there is a decision.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var sent measured
	var clients sync.WaitGroup
	for client := range 2 {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := sent.ask(t.Context(), c, 2*i+client, 40+i%30, 8+i%9); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-time.After(60 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	decided := told.until(t, "a plan was evaluated", func(r planner.Report) bool { return r.Node == "node-2" && len(r.Decision.Candidates) > 0 })
	stop()
	clients.Wait()
	ended := time.Now()
	quiet := told.until(t, "nothing arrives any more", func(r planner.Report) bool {
		return r.Observed.Start.After(ended) && r.Observed.Arrived == 0 && r.Observed.Finished == 0 && r.Decision.Refusal != planner.RefusedStaleData
	})
	busy := computed(c) - before
	agrees(t, told.all(), quiet, &sent, busy)
	advises(t, decided, busy/time.Duration(sent.requests))
	if kept, err := c.Client.PlannerReports(t.Context()); err != nil || len(kept) != 1 || kept[0].Node != "node-2" {
		t.Errorf("the store has %+v %v", kept, err)
	}

	c.Nodes[1].Kill()
	killed := time.Now()
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	clients.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := sent.ask(t.Context(), c, 5000+i, 50, 8); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	told.until(t, "node-1 observes the load", func(r planner.Report) bool {
		return r.Node == "node-1" && r.Observed.Arrived > 0 && r.Observed.Start.After(killed)
	})
	for end := time.Now().Add(patience.Soon); !strings.Contains(c.Metrics(), "\ndynamo_planner_num_d_workers{pool=\"\"} 1\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node that leads has no metrics of the planner")
		}
	}
	stop()
	clients.Wait()
}

// agrees compares what the windows of a planner add up to with what clients measured.
func agrees(t *testing.T, told []planner.Report, last planner.Report, sent *measured, busy time.Duration) {
	t.Helper()
	arrived, finished, prompt, output := 0, 0, 0.0, 0.0
	var first, whole time.Duration
	var end time.Time
	for _, r := range told {
		o := r.Observed
		if r.Node != last.Node || r.Decision.Time.After(last.Decision.Time) {
			continue
		}
		if !end.IsZero() && !o.Start.Equal(end) {
			t.Errorf("a window begins at %s, the one before ended at %s", o.Start, end)
		}
		end = o.End
		n := float64(o.Finished)
		arrived, finished, prompt, output = arrived+o.Arrived, finished+o.Finished, prompt+n*o.ISL, output+n*o.OSL
		first, whole = first+time.Duration(o.Finished)*o.TTFT, whole+time.Duration(o.Finished)*o.Duration
		if span := o.End.Sub(o.Start).Seconds(); span > 0 && math.Abs(o.Rate*span-float64(o.Arrived)) > 1e-6 {
			t.Errorf("%v requests/s in %v s with %d requests", o.Rate, span, o.Arrived)
		}
	}
	if arrived != sent.requests || finished != sent.requests || math.Round(prompt) != float64(sent.prompt) || math.Round(output) != float64(sent.output) {
		t.Errorf("the planner saw %d requests, %d finished, with %.1f and %.1f tokens; clients sent %d, with %d and %d", arrived, finished, prompt, output, sent.requests, sent.prompt, sent.output)
	}
	// What clients measure has the way to the frontend and back in it. While the engine computes, a
	// request is under way.
	slack := time.Duration(sent.requests) * time.Microsecond // of means that are rounded
	if first <= 0 || first > sent.first+slack || whole > sent.whole+slack || whole+slack < busy || busy == 0 {
		t.Errorf("first tokens took %s and answers %s together; clients measured %s and %s, and the engine computed for %s", first, whole, sent.first, sent.whole, busy)
	}
	t.Logf("%d requests: first tokens took %s of %s, answers %s of %s, steps %s", sent.requests, first, sent.first, whole, sent.whole, busy)
}

// computed is for how long engines have computed.
func computed(c *clustertest.Cluster) (busy time.Duration) {
	for _, st := range c.LiveStats() {
		busy += time.Duration(st.Stats.StepNanosTotal)
	}
	return busy
}

// advises looks at a decision under a light load of one worker, whose engine computed for alone for each request. Requests
// that are computed together take less, so that the share of its capacity that a rate needs is not more than
// what they would take one after the other. The factor is for costs that are found from few windows.
func advises(t *testing.T, r planner.Report, alone time.Duration) {
	t.Helper()
	const factor = 3
	d, o := r.Decision, r.Observed
	if d.Mode != planner.ModeAdvise || d.Current.String() != "1 aggregated" || d.Changes() && d.Proposal.Decode+d.Proposal.Prefill < 1 || len(r.Explanation) < 3 || r.Target.TTFT != 500*time.Millisecond {
		t.Errorf("%+v", r)
	}
	c := d.Candidates[0]
	down, _ := d.Number(planner.ReasonDownRate)
	sensitivity, _ := d.Number(planner.ReasonSensitivity)
	if c.Plan != d.Current || down <= 0 || sensitivity <= 0 || c.Outcome.DecodeLoad <= 0 || c.Outcome.PrefillLoad != 0 {
		t.Fatalf("candidate %+v of %+v", c, d)
	}
	if most := down / sensitivity * alone.Seconds(); c.Outcome.DecodeLoad > factor*most {
		t.Errorf("decode load %.3f at %.1f requests/s, of which each takes %s alone: %.3f", c.Outcome.DecodeLoad, down/sensitivity, alone, most)
	}
	t.Logf("decode load %.3f at %.1f requests/s; %.1f requests/s arrived", c.Outcome.DecodeLoad, down/sensitivity, o.Rate)
}
