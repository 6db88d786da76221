package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestIndexPane(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 120, 30, Options{})
	sc.press("i")
	sc.has("i KV index (7)", "OUT OF DATE", "index of 2 frontends, 1s ago", "approximate: by what was routed")
	row := func(worker string) string {
		t.Helper()
		for line := range strings.Lines(sc.m.View()) {
			if strings.Contains(line, worker+" ") {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		t.Fatalf("no row of %s", worker)
		return ""
	}
	for worker, want := range map[string]string{
		"worker-3": "42 1s 312 6s 800 0 0",    // events per second, the last, gaps, out of date, predicted, false
		"worker-4": "43 2s 0 no 800 110 14",   //
		"worker-5": "44 2s 0 no 0 0 -",        // nothing was predicted
		"worker-6": "0 - 0 - 800 0 0",         // without events none can be missing
		"worker-7": "- - - - - - - - - - - │", // no frontend knows it
	} {
		if got := row(worker); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", worker, got, want)
		}
	}
	sc.press(":", "type:sort false", "enter", "g", "enter")
	sc.has("› worker-4")
	sc.press("esc", "y")
	sc.has("KV cache of worker-4", "recent:")
}

func TestIndexPaneWithoutAnswers(t *testing.T) {
	s := labSnapshot()
	s.Caches = nil
	sc := newScreen(t, s, 100, 30, Options{View: "index"})
	sc.has("no KV caches are known", "no frontend was asked")
	s.Caches = &cluster.KVCaches{}
	sc.send(snapshotMsg{s, noon()})
	sc.has("no frontend has answered yet")
	s.Caches = &cluster.KVCaches{Error: "no frontend reports its prefix index"}
	sc.send(snapshotMsg{s, noon()})
	sc.has("no frontend reports its prefix index")
	s.Caches = labCaches(s.Workers)
	s.Caches.Error, s.Caches.At = "deadline exceeded", noon().Add(-9*time.Second)
	sc.send(snapshotMsg{s, noon()})
	sc.has("2 frontends, 9s ago", "deadline exceeded", "4,032") // old answers stay, with their age
	sc.press("5")
	sc.has("1 out of date")
}

// The share of false blocks is a column where frontends report it, and an order always.
func TestFalseBlocksOfWorkers(t *testing.T) {
	s := labSnapshot()
	sc := newScreen(t, s, 140, 90, Options{})
	sc.has("FALSE%")
	sc.press(":", "type:sort false", "enter", "g")
	if got := sc.m.subject().Worker; got != "worker-4" {
		t.Errorf("the most false blocks are at %s, want worker-4", got)
	}
	sc.press("?")
	sc.has("share of the blocks predicted in the last minute")
	sc.press("esc")
	for i := range s.Caches.Workers {
		if x := s.Caches.Workers[i].Index; x != nil {
			x.Recent = nil
		}
	}
	sc.send(snapshotMsg{s, noon()})
	sc.lacks("FALSE%")
}

func TestRouterPaneSumsUp(t *testing.T) {
	s := labSnapshot()
	sc := newScreen(t, s, 100, 30, Options{View: "router"})
	// 62 of 86 blocks were found; 8, 12, 1, 1 and 2 were not, at three of the serving decode workers 3 to 6.
	sc.has("28/28", "0/1", "reuse 72%", "of 66 reusable 62 reused", "remote 3/5", "max/mean 2.17", "pred-found +2")
	wide := newScreen(t, s, 120, 90, Options{View: "router"})
	wide.has("reuse 72%   blocks 86   of 66 reusable 62 reused")
	wide.press("?")
	wide.has("blocks that the index promised of the chosen worker / of the best candidate", "blocks that at least one worker held when the request was routed")
	for i := range s.Decisions {
		d := &s.Decisions[i]
		d.Reusable, d.Weighed = nil, []string{cluster.TermTurn}
		d.Prefill = ""
	}
	s.Decisions[0].Prefill, s.Decisions[0].Overlap = "worker-1", 9
	sc.send(snapshotMsg{s, noon()})
	sc.has("reuse 25%", "of - reusable - reused", "remote 1/1", "max/mean 4.00", "pred-found +19")
	s.Decisions = nil
	sc.send(snapshotMsg{s, noon()})
	sc.has("reuse -", "max/mean -", "pred-found -")
}
