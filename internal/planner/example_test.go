package planner

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// workedExample is that of docs/planner.md: 100 s of 8 requests/s, then 5 s with 150 requests, of 3,000 and
// 300 tokens; and then the load of before, until a worker goes.
func workedExample(t *testing.T) (up, down Decision) {
	s := newScene(t, config(), Plan{Prefill: 1, Decode: 1})
	s.run(20, 40)
	up = s.tick(150)
	for range 100 {
		if down = s.tick(40); down.Cause == CauseDown {
			return up, down
		}
	}
	t.Fatal("no worker goes")
	return
}

func TestDocumentHasTheExample(t *testing.T) {
	text, err := os.ReadFile("../../docs/planner.md")
	if err != nil {
		t.Fatal(err)
	}
	up, down := workedExample(t)
	for _, d := range []Decision{up, down} {
		if block := strings.Join(d.Lines(), "\n"); !strings.Contains(string(text), "```\n"+block+"\n```\n") {
			t.Errorf("docs/planner.md lacks\n%s", block)
		}
	}
}

// Every number of the example follows from the ones before it.
func TestExampleAddsUp(t *testing.T) {
	up, down := workedExample(t)
	for _, d := range []Decision{up, down} {
		n := func(name string) float64 {
			v, ok := d.Number(name)
			if !ok {
				t.Fatalf("no %s", name)
			}
			return v
		}
		same := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		arrived, span := n(ReasonProvenArrivals), n(ReasonProvenSeconds)
		same(ReasonProvenRate, n(ReasonProvenRate), (arrived-2*math.Sqrt(arrived))/span)
		same(ReasonPlannedRate, n(ReasonPlannedRate), max(n(ReasonForecastRate), n(ReasonProvenRate)))
		possible := n(ReasonPossibleArrivals)
		same(ReasonPossibleRate, n(ReasonPossibleRate), (possible+2*math.Sqrt(possible))/n(ReasonPossibleSeconds))
		same(ReasonDownRate, n(ReasonDownRate), max(n(ReasonLaterRate), n(ReasonPossibleRate), n(ReasonPlannedRate)))
		same(ReasonLookAhead, n(ReasonLookAhead), 2*30+5)
		same(ReasonPayback, n(ReasonPayback), n(ReasonLookAhead)+30+5)
		rate := n(ReasonDownRate) / n(ReasonSensitivity)
		if d.Cause == CauseForecast {
			same(ReasonSizedRate, n(ReasonSizedRate), max(n(ReasonForecastRate), arrived/span)+n(ReasonBacklogRate))
			rate = n(ReasonSizedRate)
		}
		chosen := 0
		for _, c := range d.Candidates {
			same("devices", float64(c.Devices), float64(c.Plan.Prefill+c.Plan.Decode))
			if c.Plan.Prefill > 0 {
				same("prefill load of "+c.Plan.String(), c.Outcome.PrefillLoad, rate*n(ReasonISL)/50_000/float64(c.Plan.Prefill))
			}
			same("misses of "+c.Plan.String(), c.Outcome.Miss, 1-(1-c.Outcome.MissTTFT)*(1-c.Outcome.MissITL))
			if c.Holds != (c.Outcome.Miss <= 1-target().Percentile) {
				t.Errorf("%v holds: %v with %v", c.Plan, c.Holds, c.Outcome.Miss)
			}
			if c.Plan == d.Proposal && c.Rejected == "" {
				chosen++
			}
		}
		if chosen != 1 {
			t.Errorf("%d candidates are chosen", chosen)
		}
	}
}

// Every kind of decision has words, and their first line names both plans.
func TestLines(t *testing.T) {
	for cause, words := range causes {
		d := Decision{Current: Plan{1, 1, 0}, Proposal: Plan{2, 1, 0}, Actions: []Action{{ActionStart, Roles[0], 1}}, Cause: cause}
		if got := d.Lines()[0]; got != fmt.Sprintf("1P1D -> 2P1D: start 1 prefill, because %s.", words) {
			t.Errorf("%s: %q", cause, got)
		}
	}
	d := Decision{Current: Plan{1, 1, 0}, Proposal: Plan{1, 1, 512}, Cause: CauseForecast, BestEffort: true, Refusal: RefusedBudget}
	got := strings.Join(d.Lines(), "\n")
	for _, want := range []string{"change disagg.max_local_prefill_tokens", "misses least", sentences[RefusedBudget]} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
