package router

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A worker above a limit is excluded, with the figure and the limit; at the limit it is not.
func TestBusyLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits BusyLimits
		c      Candidate
		want   string // part of the reason; empty if it is eligible
	}{
		{"no limit", BusyLimits{}, Candidate{KVBlocks: 100, KVInUse: 100, PrefillTokens: 1 << 20}, ""},
		{"blocks in use, by the worker", BusyLimits{KVShare: 0.9}, Candidate{KVBlocks: 100, KVInUse: 93}, "busy: 93 % of its KV blocks are in use (threshold 90 %)"},
		{"blocks in use, by the router", BusyLimits{KVShare: 0.9}, Candidate{KVBlocks: 100, KVInUse: 10, ActiveBlocks: 95}, "busy: 95 %"},
		{"at the limit", BusyLimits{KVShare: 0.9}, Candidate{KVBlocks: 100, KVInUse: 90}, ""},
		{"a pool of unknown size", BusyLimits{KVShare: 0.9}, Candidate{ActiveBlocks: 95}, ""},
		{"prompt tokens", BusyLimits{PrefillTokens: 1000}, Candidate{PrefillTokens: 1001}, "busy: 1001 prompt tokens wait to be computed (threshold 1000)"},
		{"prompt tokens at the limit", BusyLimits{PrefillTokens: 1000}, Candidate{PrefillTokens: 1000}, ""},
		{"steps", BusyLimits{PrefillSteps: 1.5}, Candidate{PrefillTokens: 769, MaxBatchTokens: 512}, "(threshold 768)"},
		{"steps at the limit", BusyLimits{PrefillSteps: 1.5}, Candidate{PrefillTokens: 768, MaxBatchTokens: 512}, ""},
		{"less than a token", BusyLimits{PrefillSteps: 0.001}, Candidate{PrefillTokens: 1, MaxBatchTokens: 512}, "(threshold 0)"},
		{"less than a token, and none waits", BusyLimits{PrefillSteps: 0.001}, Candidate{MaxBatchTokens: 512}, ""},
		{"steps of unknown size", BusyLimits{PrefillSteps: 1.5}, Candidate{PrefillTokens: 1 << 20}, ""},
		{"the lower limit counts", BusyLimits{PrefillTokens: 700, PrefillSteps: 1.5}, Candidate{PrefillTokens: 750, MaxBatchTokens: 512}, "(threshold 700)"},
		{"the lower limit counts, in steps", BusyLimits{PrefillTokens: 5000, PrefillSteps: 1.5}, Candidate{PrefillTokens: 800, MaxBatchTokens: 512}, "(threshold 768)"},
	} {
		if got := tc.limits.reason(&tc.c); got != tc.want && (tc.want == "" || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Choose passes over a busy worker, tells when all are, and books nothing then.
func TestChooseAmongBusyWorkers(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	view := func(inUse ...int) View {
		v := View{Candidates: workers(0, 0, 0), Limits: BusyLimits{KVShare: 0.9}}
		for i, n := range inUse {
			v.Candidates[i].KVBlocks, v.Candidates[i].KVInUse = 100, n
		}
		return v
	}
	r := Request{ID: "r", PromptTokens: 32, BlockSize: 16, Hashes: []uint64{1, 2}}
	for _, tc := range []struct {
		name   string
		inUse  []int
		others string // reason why those without a figure are excluded
		err    error
	}{
		{"one is busy", []int{95}, "", nil},
		{"two are, and the third is the only one left", []int{95, 91}, "", nil},
		{"all are", []int{95, 91, 100}, "", ErrAllBusy},
		{"the others must not be chosen", []int{95}, "draining", ErrAllBusy},
		{"nobody is busy, and none may be chosen", nil, "draining", ErrAllExcluded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, v := NewLoad(), view(tc.inUse...)
			for i := len(tc.inUse); i < 3; i++ {
				v.Candidates[i].Excluded = tc.others
			}
			again := View{Candidates: slices.Clone(v.Candidates), Limits: v.Limits}
			if _, err := l.Preview(r, v, p.Pick); !errors.Is(err, tc.err) || inFlight(l) != 0 {
				t.Errorf("preview: %v, booked %d", err, inFlight(l))
			}
			d, flight, err := l.Choose(r, again, p.Pick)
			if !errors.Is(err, tc.err) || len(d.Candidates) != 3 || (err == nil) != (inFlight(l) == 1) {
				t.Fatalf("%v: %+v, booked %d", err, d, inFlight(l))
			}
			if err == nil && (d.Chosen.KVInUse > 90 || !strings.Contains(d.Candidates[2].Excluded, "busy")) {
				t.Errorf("chose %+v of %+v", d.Chosen, d.Candidates)
			}
			flight.End()
			if inFlight(l) != 0 {
				t.Errorf("booked %d", inFlight(l))
			}
		})
	}
}

// Candidates of a preview may be used again: what has ended since counts no longer.
func TestChooseAfterPreview(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	l := NewLoad()
	r := Request{ID: "r", PromptTokens: 33, BlockSize: 16, Hashes: []uint64{1, 2}}
	v := View{Candidates: workers(0), Limits: BusyLimits{PrefillTokens: 20}}
	_, before, err := l.Choose(r, v, p.Pick)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Preview(r, v, p.Pick); !errors.Is(err, ErrAllBusy) {
		t.Fatalf("preview while it is busy: %v", err)
	}
	before.End()
	d, flight, err := l.Choose(r, v, p.Pick)
	if c := d.Chosen; err != nil || c.InFlight != 0 || c.Prefills != 0 || c.PrefillTokens != 0 || c.ActiveBlocks != 0 || c.Shared != 0 || c.Uncached(r) != 33 {
		t.Errorf("%v: %+v", err, c)
	}
	flight.End()
}
