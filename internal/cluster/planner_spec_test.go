package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// What overrides the planner's settings is checked by name, kept by what changes other fields of the pool, and of
// pools alone.
func TestPlannerSpec(t *testing.T) {
	for want, s := range map[string]PlannerSpec{
		"":                            {Mode: PlannerOff, TTFT: 1, ITL: 1, PrefillMin: 1, PrefillMax: 1, DecodeMin: 2, DecodeMax: 3},
		"pools.p.planner.mode":        {Mode: "act"},
		"pools.p.planner.ttft":        {TTFT: -1},
		"pools.p.planner.itl":         {ITL: -1},
		"pools.p.planner.prefill_min": {PrefillMin: -1},
		"pools.p.planner.prefill_max": {PrefillMin: 2, PrefillMax: 1},
		"pools.p.planner.decode_min":  {DecodeMin: MaxWorkersPerRole + 1},
		"pools.p.planner.decode_max":  {DecodeMax: -1},
	} {
		err := Topology{Pools: map[string]Pool{"p": {Model: ModelSpec{Name: "x"}, Decode: 1, Planner: s}}}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want+": ") {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
	own := PlannerSpec{Mode: PlannerOff, TTFT: time.Second}
	topo := Topology{Pools: map[string]Pool{"p": {Model: ModelSpec{Name: "x"}, Decode: 1, Planner: own}}}
	view := topo.In("p")
	view.Decode = 2
	if topo.Put("p", view); topo.Pools["p"].Planner != own || topo.Pools["p"].Decode != 2 {
		t.Errorf("scaled: %+v", topo.Pools["p"])
	}
	b, err := json.Marshal(topo.In("p"))
	if err != nil || strings.Contains(string(b), "planner") {
		t.Errorf("the main pool has settings: %s %v", b, err)
	}
}

func TestKeysOfPools(t *testing.T) {
	for _, pool := range []string{"", "small", "http://gpu-3:8001"} {
		if got := PoolOf(PlannerKey("a.b", pool), PlannerPrefix("a.b")); got != pool {
			t.Errorf("%q: %q", pool, got)
		}
		if got := PoolOf(DaysKey("a.b", pool), DaysPrefix("a.b")); got != pool {
			t.Errorf("%q: %q", pool, got)
		}
	}
}

func TestLoadOfModels(t *testing.T) {
	f := FrontendStats{Models: []ModelLoad{{Model: "a", Started: 1, Served: []ServedRequest{{Prompt: 1}}, ServedOf: 3}, {Model: "b", Started: 5, ServedOf: 7}}}
	if got := f.Of("a"); got.Started != 1 || got.ServedOf != 3 || len(got.Served) != 1 {
		t.Errorf("one: %+v", got)
	}
	if got := f.Of("c"); got.Started != 0 || got.Served != nil {
		t.Errorf("none: %+v", got)
	}
	if got := f.Of(""); got.Started != 6 || got.ServedOf != 10 || len(got.Served) != 1 {
		t.Errorf("all: %+v", got)
	}
}
