package simulation

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/stats"
	"github.com/dynctl/dynctl/internal/mooncake"
)

func summary(ms ...float64) *stats.Summary {
	s := stats.NewSample(len(ms), 1)
	for _, v := range ms {
		s.Add(v)
	}
	return s.Summary(len(ms))
}

// Requests before the measured load are simulated and do not count; errors are relative to what was measured.
func TestAgree(t *testing.T) {
	c := compared(t, Comparison{}, 8).Config
	c.Prefill, c.Decode = 0, 1
	requests := []mooncake.Request{{Input: 3000, Output: 300, Blocks: []uint64{0, 1, 2, 3, 4, 5}}}
	for i := range 4 { // one at a time
		requests = append(requests, mooncake.Request{At: time.Duration(i+1) * time.Minute, Input: 500, Output: 11, Blocks: []uint64{uint64(9 + i)}})
	}
	sim, err := Last(t.Context(), c, requests, 4)
	if err != nil || sim.Answered != 4 || sim.ITL.Count() != 4 || sim.CachedShare != 0 {
		t.Fatalf("%+v, %v", sim, err)
	}
	ttft, e2e := sim.TTFT.Summary(4).P50.Value, sim.E2E.Summary(4).P50.Value
	if itl := sim.ITL.Summary(4).P50.Value; ttft <= 0 || math.Abs(ttft+10*itl-e2e) > 0.1 {
		t.Errorf("TTFT %v, ITL %v, E2E %v", ttft, itl, e2e)
	}
	report := &bench.Report{}
	report.Succeeded, report.CachedShare, report.Client.Limited = 4, 0.5, []string{"it is busy"}
	report.TTFT, report.TPOT, report.E2E = summary(ttft/1.04, ttft/1.04), summary(1e3, 1e3), summary(e2e/0.8, e2e/0.8)
	all, err := Agree(report, sim)
	if err != nil || len(all) != 6 {
		t.Fatal(all, err)
	}
	for i, want := range []struct {
		name string
		err  float64
		good bool
	}{{"TTFT p50", 0.04, true}, {"TTFT p95", 0.04, true}, {"ITL p50", -1, false}, {"ITL p95", -1, false}, {"E2E p50", -0.2, false}, {"E2E p95", -0.2, false}} {
		if a := all[i]; a.Figure != want.name || math.Abs(a.Error-want.err) > 0.02 || a.Good() != want.good {
			t.Errorf("%+v, want %+v", a, want)
		}
	}
	if a := agreement("x p95", 100, 114, allowedP95); !a.Good() || agreement("x p50", 100, 94, allowedP50).Good() {
		t.Errorf("%+v", a)
	}
	var b bytes.Buffer
	if err := ShowAgreement(&b, all, report, sim); err != nil || !strings.Contains(b.String(), "| +4.0 % | 5 % | met |") || !strings.Contains(b.String(), "50.0 % measured, 0.0 % simulated") || !strings.Contains(b.String(), "may be its own: it is busy") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for _, spoil := range []func(r *bench.Report){func(r *bench.Report) { r.Succeeded = 3 }, func(r *bench.Report) { r.Failed = 1 }, func(r *bench.Report) { r.Interrupted = true }, func(r *bench.Report) { r.TPOT = nil }} {
		r := *report
		spoil(&r)
		if all, err := Agree(&r, sim); err == nil {
			t.Errorf("%+v agrees: %v", r.Result, all)
		}
	}
}
