package cli

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/explain"
	"github.com/dynctl/dynctl/internal/cluster"
)

// someDecisions are about r-8f21, which went on at another worker, and two others.
func someDecisions() []cluster.RouterDecision {
	at := func(s int) time.Time { return clitest.Noon.Add(time.Duration(s) * time.Second) }
	candidate := func(worker string, load int, excluded string) cluster.RouteCandidate {
		return cluster.RouteCandidate{Worker: worker, ID: 7, Load: load, Cost: float64(load), Terms: []cluster.CostTerm{{Name: cluster.TermLoad, Value: float64(load)}}, Excluded: excluded}
	}
	return []cluster.RouterDecision{
		{RequestID: "r-8f21", Time: at(1), Phase: cluster.RolePrefill, Policy: "least-loaded", Weighed: []string{cluster.TermLoad}, Chosen: "worker-1", PromptToks: 576, Blocks: 36, DecidedNS: 210_000, Predicted: 12, Overlap: 9, Prefill: "worker-1", PrefillWhy: "long prompt",
			Candidates: []cluster.RouteCandidate{candidate("worker-1", 3, ""), candidate("worker-2", 9, "")}},
		{RequestID: "r-8f21", Time: at(2), Phase: cluster.RoleDecode, Policy: "least-loaded", Weighed: []string{cluster.TermLoad}, Chosen: "worker-3", PromptToks: 576, Blocks: 36, Predicted: 30, Overlap: 28,
			Prefill: "worker-1", PrefillWay: "queue",
			Candidates: []cluster.RouteCandidate{candidate("worker-3", 14, ""), candidate("worker-5", 14, ""), candidate("worker-6", 14, ""), candidate("worker-7", 3, "draining")}},
		{RequestID: "r-8f21~1", Time: at(3), Phase: cluster.RoleDecode, Policy: "round-robin", Weighed: []string{cluster.TermTurn}, Chosen: "worker-5", PromptToks: 580, Blocks: 36,
			Candidates: []cluster.RouteCandidate{candidate("worker-5", 14, ""), candidate("worker-6", 2, "")}},
		{RequestID: "r-8e00", Time: at(4), Phase: cluster.RoleDecode, Policy: "kv", Weighed: []string{cluster.TermUncached, cluster.TermLoad}, Blocks: 2, Prefill: "local", PrefillWhy: "short"},
		{RequestID: "r-9000", Time: at(5), Phase: cluster.RoleDecode, Policy: "kv", Weighed: []string{cluster.TermUncached, cluster.TermLoad}, Chosen: "worker-3", Blocks: 2,
			Candidates: []cluster.RouteCandidate{{Worker: "worker-3", Cost: 1.5, Terms: []cluster.CostTerm{{Name: cluster.TermUncached, Value: 1}, {Name: cluster.TermLoad, Value: 0.5}}},
				{Worker: "worker-5", Cost: 4.25, Terms: []cluster.CostTerm{{Name: cluster.TermUncached, Value: 4}, {Name: cluster.TermLoad, Value: 0.25}}}, {Worker: "worker-6", Cost: math.Inf(1)}}},
	}
}

func TestExplainRoute(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Decisions: someDecisions()})
	want := "STAGE\tWORKER\tOVERLAP\tUNCACHED\tLOAD\tTERMS\tCOST\tRESULT\n" +
		"prefill\tworker-1\t9/36\t27\t3\tload 3.0\t3.0\tchosen\n" +
		"prefill\tworker-2\t-\t-\t9\tload 9.0\t9.0\t+6.0, second best\n" +
		"decode\tworker-3\t28/36\t8\t14\tload 14.0\t14.0\tchosen\n" +
		"decode\tworker-5\t-\t-\t14\tload 14.0\t14.0\tequal, and the hash chose another\n" +
		"decode\tworker-6\t-\t-\t14\tload 14.0\t14.0\tequal, and the hash chose another\n" +
		"decode\tworker-7\t-\t-\t3\t-\t-\texcluded: draining\n" +
		"decode\tworker-5\t-\t-\t14\tload 14.0\t14.0\tchosen\n" +
		"decode\tworker-6\t-\t-\t2\tload 2.0\t2.0\tnot its turn\n"
	for _, name := range []string{"r-8f21", "r-8f2", "r-8f21~1"} {
		if r := w.ok("explain", "route", strings.TrimSuffix(name, "~1")); r.stdout != want || r.stderr != "" {
			t.Errorf("%s:\n%s%s", name, r.stdout, r.stderr)
		}
	}
	r := w.ok("explain", "route") // the newest
	clitest.Has(t, "newest", r.stdout, "decode\tworker-3\t0/2\t2\t0\tuncached 1.0 + load 0.5\t1.5\tchosen\n", "decode\tworker-5\t0/2\t2\t0\tuncached 4.0 + load 0.25\t4.25\t+2.75, second best\n", "decode\tworker-6\t0/2\t2\t0\t-\t-\t-\n")

	r = w.with(t.Context(), options{tty: true, env: []string{"NO_COLOR=1"}}, "explain", "route", "r-8f21")
	clitest.Has(t, "terminal", r.stdout, "route r-8f21   prompt 576 tok = 36 blocks   decided in 0.21 ms   policy least-loaded   at ",
		"prefill at worker-1 (long prompt)\n", "prompt computed at worker-1 by queue\n", "predicted in the cache of worker-1: 12 blocks; found: 9\n", "predicted in the cache of worker-3: 30 blocks; found: 28\n", "decided by load; overlap is observed at the chosen worker, and not weighed\n", "the request continued on another worker", "cost = requests in flight")
	if n := strings.Count(r.stdout, "prompt computed at"); n != 1 {
		t.Errorf("says %d times where the prompt was computed:\n%s", n, r.stdout)
	}
	r = w.with(t.Context(), options{tty: true}, "explain", "route", "r-8e00")
	clitest.Has(t, "none chosen", r.stdout, "no worker to choose from", "prompt computed at local (short)")

	var x explain.Route
	if err := json.Unmarshal([]byte(w.ok("explain", "route", "r-8f21", "-o", "json").stdout), &x); err != nil {
		t.Fatal(err)
	}
	if x.RequestID != "r-8f21" || len(x.Decisions) != 3 || x.Decisions[1].Candidates[3].Excluded != "draining" || x.Decisions[2].RequestID != "r-8f21~1" {
		t.Errorf("%+v", x)
	}
	if r := w.ok("explain", "route", "r-8f21", "-q"); r.stdout != "worker-1\nworker-3\nworker-5\n" {
		t.Errorf("-q: %q", r.stdout)
	}
	clitest.Has(t, "completion", w.ok("__complete", "explain", "route", "r-8").stdout, "r-8e00\t", "r-8f21\t")

	r = w.run("explain", "route", "r-8")
	if r.code != exit.Failed {
		t.Errorf("ambiguous: %+v", r)
	}
	clitest.Has(t, "ambiguous", r.stderr, "2 requests begin so\n  r-8e00\n  r-8f21\n  try: dynctl explain route r-8e00\n")
	if r := w.run("explain", "route", "r-7"); r.code != exit.Failed || !strings.Contains(r.stderr, "no frontend remembers such a request") {
		t.Errorf("unknown: %+v", r)
	}
	if r := w.run("explain", "route", "a", "b"); r.code != exit.Usage {
		t.Errorf("two: %+v", r)
	}
}

// What follows the table is the sample of the documentation.
func TestExplainRouteWithImages(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Decisions: []cluster.RouterDecision{{
		RequestID: "36cc44a9", Time: clitest.Noon, Phase: cluster.RoleDecode, Chosen: "worker-2", Prefill: "worker-1", PrefillWay: "queue",
		QueueNS: 0.1e6, PrefillNS: 23e6, ComputeNS: 22.7e6, KV: &cluster.RoutedKV{NS: 0.1e6, Bytes: 192 << 10}, DecodeNS: 140.7e6,
		Images: &cluster.RoutedImages{Count: 1, EncodeNS: 15e6, MoveNS: 0.3e6, Bytes: 16 << 10, By: []string{"worker-3"}, Chosen: []string{"first by content"}},
	}}})
	page, err := os.ReadFile("../../docs/multimodal.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin = "prompt computed at worker-1 by queue\n"
	_, after, found := strings.Cut(string(page), begin)
	sample, _, ended := strings.Cut(after, "```")
	if !found || !ended {
		t.Fatal("the page has no sample")
	}
	clitest.Has(t, "terminal", w.with(t.Context(), options{tty: true, env: []string{"NO_COLOR=1"}}, "explain", "route").stdout, "\n"+begin+sample)
}

func TestExplainRouteWithoutRequests(t *testing.T) {
	w := newWorld(t)
	if r := w.run("explain", "route"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "no frontend reports its router decisions") {
		t.Errorf("no frontend: %+v", r)
	}
	w.agent(fakeConfig{Decisions: []cluster.RouterDecision{}})
	if r := w.run("explain", "route"); r.code != exit.Failed || !strings.Contains(r.stderr, "no request came yet") {
		t.Errorf("no request: %+v", r)
	}
}
