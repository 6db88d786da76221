package simulation

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/simulate"
)

// What the planner sees is what was observed, in its units and states.
func TestObservation(t *testing.T) {
	const s = time.Second
	a := Autoscaler{Config: planner.Defaults(), MaxLocalPrefill: 64}
	got := a.observation(&simulate.Observation{
		From: 5 * s, To: 10 * s, Arrivals: make([]simulate.Arrival, 7),
		Ends:    []simulate.End{{At: 6 * s, TTFT: s, E2E: 3 * s, ITL: time.Millisecond, Input: 300, Cached: 128, Output: 9}},
		Changes: []simulate.Change{{Kind: simulate.Started, Role: cluster.RoleDecode, Took: 60 * s}, {Kind: simulate.Flipped, Role: cluster.RolePrefill, Took: 5 * s}, {Kind: simulate.Drained, Role: cluster.RoleDecode, Took: 2 * s}},
		Queue:   simulate.Queue{Frontend: 3, Oldest: s, Prefill: 2},
		Workers: []simulate.WorkerView{
			{Name: "a", Role: cluster.RolePrefill, State: simulate.Ready, PrefillTokens: 50, PromptTokens: 900, PromptBusy: s},
			{Name: "b", Role: cluster.RoleDecode, State: simulate.Ready, Step: time.Millisecond, StepKV: 4000, Ordered: s},
			{Name: "c", Role: cluster.RoleDecode, State: simulate.Starting, Ordered: 2 * s},
			{Name: "d", Role: cluster.RoleDecode, State: simulate.Draining, Ordered: 3 * s},
			{Name: "e", Role: cluster.RoleDecode, State: simulate.Draining, Flips: true, Ordered: 4 * s},
			{Name: "f", Role: cluster.RoleDecode, State: simulate.Starting, Flips: true, Ordered: 5 * s},
		},
	})
	want := planner.Observation{
		Start: clock(5 * s), End: clock(10 * s), Arrived: 7, MaxLocalPrefill: 64,
		Requests: []planner.Request{{Length: planner.Length{ISL: 300, Cached: 128, OSL: 9}, TTFT: s, ITL: time.Millisecond}},
		Finished: []planner.Duration{{Kind: planner.ActionStart, Took: 60 * s}, {Kind: planner.ActionFlip, Took: 5 * s}, {Kind: planner.ActionDrain, Took: 2 * s}},
		Prefill: planner.RoleState{Queued: 2, Workers: []planner.Worker{
			{Name: "a", State: planner.WorkerReady, QueuedTokens: 50, PromptTokens: 900, PromptBusy: s},
			{Name: "e", State: planner.WorkerStarting}, // it will be one
		}},
		Decode: planner.RoleState{Queued: 3, OldestAge: s, Workers: []planner.Worker{
			{Name: "b", State: planner.WorkerReady, Step: time.Millisecond, KVTokens: 4000},
			{Name: "c", State: planner.WorkerStarting}, {Name: "d", State: planner.WorkerDraining}, {Name: "f", State: planner.WorkerStarting},
		}},
		Pending: []planner.Pending{
			{Kind: planner.ActionStart, Role: cluster.RoleDecode, Since: clock(2 * s)}, {Kind: planner.ActionDrain, Role: cluster.RoleDecode, Since: clock(3 * s)},
			{Kind: planner.ActionFlip, Role: cluster.RolePrefill, Since: clock(4 * s)}, {Kind: planner.ActionFlip, Role: cluster.RoleDecode, Since: clock(5 * s)},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Workers that change their role are named, those with least to do first; the rest are numbers.
func TestActions(t *testing.T) {
	o := &simulate.Observation{Workers: []simulate.WorkerView{
		{Name: "p", Role: cluster.RolePrefill, State: simulate.Ready},
		{Name: "full", Role: cluster.RoleDecode, State: simulate.Ready, Running: 9},
		{Name: "starts", Role: cluster.RoleDecode, State: simulate.Starting},
		{Name: "idle", Role: cluster.RoleDecode, State: simulate.Ready, Running: 1},
	}}
	number := func(role cluster.Role, n int) simulate.Action { return simulate.Action{Role: role, Workers: n} }
	for _, tc := range []struct {
		to   planner.Plan
		want []simulate.Action
	}{
		{planner.Plan{Prefill: 1, Decode: 3}, nil},
		{planner.Plan{Prefill: 2, Decode: 2}, []simulate.Action{{Role: cluster.RolePrefill, Flip: "idle"}}},
		{planner.Plan{Prefill: 4, Decode: 2}, []simulate.Action{{Role: cluster.RolePrefill, Flip: "idle"}, number(cluster.RolePrefill, 4)}},
		{planner.Plan{Prefill: 0, Decode: 2}, []simulate.Action{number(cluster.RolePrefill, 0), number(cluster.RoleDecode, 2)}},
		{planner.Plan{Prefill: 0, Decode: 4}, []simulate.Action{{Role: cluster.RoleDecode, Flip: "p"}}},
		{planner.Plan{Prefill: 4, Decode: 0}, []simulate.Action{ // two serve, three should change
			{Role: cluster.RolePrefill, Flip: "idle"}, {Role: cluster.RolePrefill, Flip: "full"}, number(cluster.RolePrefill, 4), number(cluster.RoleDecode, 0),
		}},
	} {
		a := Autoscaler{Config: planner.Defaults()}
		if got := a.actions(planner.Plan{Prefill: 1, Decode: 3}, tc.to, o); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.to, got, tc.want)
		}
	}
}

// A simulation under the planner gives the same bytes each time, follows a load that grows, and never has more
// devices than the budget.
func TestPlanned(t *testing.T) {
	load := autoscalers.Load{Name: "step", Seconds: 300, ISL: 3000, OSL: 100, Spread: 0.4, Rate: func(t float64) float64 {
		if t < 100 {
			return 3
		}
		return 14
	}}
	var results, texts []string
	for range 2 {
		c, _ := declared(t, "model: {name: m, path: /m}\nprefill: {workers: 1}\ndecode: 1\n")
		c.TTFT, c.ITL, c.Load = time.Second, 25*time.Millisecond, Drawn(load.Arrivals(1))
		p, err := Plan(&c, 4)
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if a := p.Autoscaler; a.Held > 4 || a.Breaches > 0 || a.Held < 3 || len(a.Changes) == 0 || len(p.Decisions) != len(a.Changes) {
			t.Errorf("%d devices at most, %d breaches, %d decisions, changes %+v", a.Held, a.Breaches, len(p.Decisions), a.Changes)
		}
		var result, text bytes.Buffer
		if err := r.Write(&result); err != nil {
			t.Fatal(err)
		}
		if err := p.Show(&text, r); err != nil {
			t.Fatal(err)
		}
		results, texts = append(results, result.String()), append(texts, text.String())
	}
	if results[0] != results[1] || texts[0] != texts[1] {
		t.Error("two runs differ")
	}
	for _, want := range []string{"of 4 devices.", "1P1D -> ", "because the load needs it", "| until |"} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("%q is missing in\n%s", want, texts[0])
		}
	}
	c, _ := declared(t, "model: {name: m, path: /m}\nprefill: {workers: 1}\ndecode: 1\n")
	c.TTFT, c.ITL = time.Second, time.Second
	if _, err := Plan(&c, 1); err == nil || !strings.Contains(err.Error(), "needs 2 devices, the budget has 1") {
		t.Errorf("%v", err)
	}
}
