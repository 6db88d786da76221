package tui

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// withEncode adds an encode worker, which is loaded and has neither KV nor tokens.
func withEncode() cluster.Snapshot {
	s := labSnapshot()
	s.Topology.Encode = 1
	w := s.Workers[0]
	w.Name, w.Role, w.InstanceID, w.Device = "worker-8", cluster.RoleEncode, 0x7f08, "cpu:0"
	w.Stats = cluster.WorkerStats{Running: 2, Waiting: 3, RequestsTotal: 1802, FinishedTotal: 1797}
	w.TokS, w.HitRate = nil, nil
	s.Workers = append(s.Workers, w)
	return s
}

// An encode worker stands among the others, in a color of its own, and shows no zeros for
// what it does not have.
func TestEncodeWorkerInTheList(t *testing.T) {
	sc := newScreen(t, withEncode(), 120, 40, Options{})
	line := ""
	for l := range strings.Lines(sc.m.View()) {
		if strings.Contains(l, "worker-8 encode") {
			line = l
		}
	}
	fields := strings.Fields(strings.Trim(strings.TrimSpace(line), "│"))
	// NAME ROLE DEVICE STATE SEQS used/total TOK/S PREFIX% FALSE% LEASE ...
	if got := strings.Join(fields, " "); !strings.HasPrefix(got, "worker-8 encode cpu0 32c ● ready 2+3 - - - - 8.7s ") {
		t.Errorf("the row is %q", got)
	}
	styles := map[draw.Style]bool{}
	for _, r := range cluster.Roles {
		styles[moment.RoleStyle(r)] = true
	}
	if len(styles) != len(cluster.Roles) || styles[draw.Plain] {
		t.Errorf("roles share styles: %v", styles)
	}
}

// The images of an encode worker are no sequences of its node.
func TestNodeOfAnEncodeWorker(t *testing.T) {
	running := 0
	for _, w := range labSnapshot().Workers {
		running += w.Stats.Running
	}
	m := moment.New(false, noon().Location())
	m.Take(withEncode())
	if _, f := m.Node("n1"); f == nil || f.Running != running || f.Workers != 8 {
		t.Errorf("facts %+v, want %d sequences", f, running)
	}
}

// The screen of an encode worker has its images and totals, and nothing of KV, tokens and
// prefills.
func TestScreenOfAnEncodeWorker(t *testing.T) {
	sc := newScreen(t, withEncode(), 160, 50, Options{Worker: "worker-8"})
	sc.has("images (2+3)", "waiting", "1,802", "1,797", "transfers", "TP degree")
	sc.lacks("KV blocks -", "KV events", "KV coming", "KV transfers", "tokens", "prefill ", "prefix hit", "preempted", "evicted", "fallback", "asking")
	newScreen(t, withEncode(), 160, 50, Options{Worker: "worker-3"}).has("KV blocks", "remote prefill", "preempted")

	sc = newScreen(t, withEncode(), 120, 40, Options{})
	sc.press(":", "type:drain worker-8", "enter")
	sc.has("images in work 2   waiting 3", "New images go to others", "the last serving encode worker: workers")
	sc.lacks("KV coming")
}

// A scale of encode workers is over when they serve, and the summary has them.
func TestScaleOfEncodeWorkers(t *testing.T) {
	if got := shape(&cluster.Topology{Prefill: 2, Decode: 5, Encode: 1}); got != "2 prefill + 5 decode + 1 encode" {
		t.Errorf("shape %q", got)
	}
	sc := lab(t)
	sc.run(sc.press(":", "type:scale encode=1", "enter", "tab", "enter"))
	s := labSnapshot()
	s.Topology.Encode = 1
	sc.at(s)
	sc.lacks("the cluster has")
	s = withEncode()
	s.Workers[6].Desire = cluster.DesireDrain
	sc.at(s)
	sc.has("the cluster has 2 prefill + 5 decode + 1 encode workers")
}
