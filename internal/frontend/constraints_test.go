package frontend

import (
	"net/http"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
)

func tainted(taints ...string) func(*fake) {
	return func(fk *fake) { fk.card.Runtime.Taints = taints }
}

func constraints(required []string, preferred body) body {
	return body{"nvext": body{"routing_constraints": body{"required_taints": required, "preferred_taints": preferred}}}
}

func TestTaints(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"), tainted("zone=a"))
	w.fake("worker-2", say("abc"), tainted("zone=b", "fast"))
	w.fake("worker-3", say("abc"))
	f := w.frontend().waitModel(3)
	for range 5 {
		for want, ask := range map[string]body{
			"worker-1": constraints([]string{"zone=a"}, nil),
			"worker-2": constraints([]string{"fast", "zone=b"}, nil),
			"worker-3": constraints(nil, body{"zone=a": -2, "fast": -1.5}),
		} {
			if told, status, e := f.sessionRoute(t, "", ask); status != http.StatusOK || told.Worker != want {
				t.Errorf("%v: status %d, went to %q, want %q; %+v", ask, status, told.Worker, want, e)
			}
		}
	}
	if d := f.decisions.find("", 100); len(d) != 15 {
		t.Errorf("%d decisions", len(d))
	} else {
		for _, d := range d {
			for _, c := range d.Candidates {
				if c.Worker == "worker-3" && d.Chosen != "worker-3" && !strings.HasPrefix(c.Excluded, "it lacks the taint ") {
					t.Errorf("chose %s: %+v", d.Chosen, c)
				}
			}
		}
	}
	for _, taints := range [][]string{{"zone=c"}, {"zone=a", "fast"}} {
		_, status, e := f.sessionRoute(t, "", constraints(taints, nil))
		if status != http.StatusServiceUnavailable || e.code() != "no_matching_worker" {
			t.Errorf("%v: status %d, %+v", taints, status, e)
		}
	}
}

// Prefill workers have to have the required taints, too, with either strategy: what waits in
// the prefill queue would go to any of them.
func TestTaintsOfPrefillWorkers(t *testing.T) {
	for _, strategy := range []string{protocol.StrategyPrefillFirst, protocol.StrategyDecodeFirst} {
		w := newWorld(t)
		one := w.prefiller("worker-1", holds("worker-1", nil), tainted("zone=a"))
		two := w.prefiller("worker-2", holds("worker-2", nil), tainted("zone=b"))
		dec := w.fake("worker-3", prefilledBy("abc"), tainted("zone=b", "zone=c"))
		settings := routing()
		settings.change(func(k *Settings) { k.Strategy = strategy })
		f := w.routed(settings, 2, 1)
		for taint, want := range map[string]int{"zone=b": 1, "zone=c": 0} {
			before := len(two.got())
			ask := longPrompt()
			ask["nvext"] = constraints([]string{taint}, nil)["nvext"]
			if resp := f.post("/v1/completions", ask); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d, %s", taint, resp.StatusCode, readAll(t, resp))
			} else {
				readAll(t, resp)
			}
			got := dec.got()
			last := got[len(got)-1]
			if n := len(two.got()) - before; n != want || len(one.got()) != 0 || len(last.RequiredTaints) != 1 || last.RequiredTaints[0] != taint {
				t.Errorf("%s: asked worker-2 %d times, worker-1 %d times; worker-3 was told of %v", taint, n, len(one.got()), last.RequiredTaints)
			}
		}
	}
}

func TestBadConstraints(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("abc"))
	f := w.frontend().waitModel(1)
	many := body{}
	for i := range 40 {
		many["t"+strings.Repeat("x", i)] = 1
	}
	for _, tc := range []struct {
		value any
		param string
	}{
		{1, "nvext.routing_constraints"},
		{body{"taints": []string{}}, "nvext.routing_constraints.taints"},
		{body{"required_taints": "a"}, requiredTaints},
		{body{"required_taints": []string{""}}, requiredTaints},
		{body{"required_taints": []string{"a b"}}, requiredTaints},
		{body{"required_taints": make([]string, 33)}, requiredTaints},
		{body{"preferred_taints": []string{"a"}}, preferredTaints},
		{body{"preferred_taints": body{"a": "much"}}, preferredTaints + ".a"},
		{body{"preferred_taints": body{"a": 1e4}}, preferredTaints + ".a"},
		{body{"preferred_taints": many}, preferredTaints},
	} {
		resp := f.post("/v1/completions", textBody(body{"nvext": body{"routing_constraints": tc.value}}))
		if e := failureOf(t, resp); resp.StatusCode != http.StatusBadRequest || e.param() != tc.param {
			t.Errorf("%v: status %d, %+v, want a fault of %s", tc.value, resp.StatusCode, e, tc.param)
		}
	}
	resp := f.post("/v1/completions", textBody(body{"nvext": body{"routing_constraints": nil}}))
	if text := readAll(t, resp); resp.StatusCode != http.StatusOK {
		t.Errorf("null: status %d, %s", resp.StatusCode, text)
	}
}
