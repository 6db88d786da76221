package live

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// stored is a topology as it is stored.
func stored(t *testing.T, text string) *Declared {
	t.Helper()
	d, err := decodeDeclared(store.KV{Key: "k", Value: []byte(text), ModRevision: 7})
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

const (
	ownPools = `{"model":{"name":"m"},"prefill":1,"decode":2,"pools":{"a":{"model":{"name":"x"},"decode":1},"b":{"model":{"name":"x"},"prefill":1,"decode":1}},
		"attached":[{"model":{"name":"m"},"role":"decode","engine":{"backend":"vllm","server":{"url":"http://1"}}},
		{"model":{"name":"y"},"role":"prefill","engine":{"backend":"vllm","server":{"url":"http://2"}}},
		{"model":{"name":"y"},"role":"decode","engine":{"backend":"vllm","server":{"url":"http://3"}}},
		{"model":{"name":"x"},"role":"decode","engine":{"backend":"vllm","server":{"url":"http://4"}}}]}`
	noMain = `{"prefill":0,"decode":0,"pools":{"a":{"model":{"name":"x"},"decode":1}}}`
)

// One planner plans for a model, whoever serves it.
func TestUnits(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"model":{"name":"m"},"prefill":0,"decode":0}`, `[{ m [] }]`},
		{noMain, `[{a x [] a}]`},
		{ownPools, `[{ m [http://1] } {a x [b http://4] a} {b x [] a} {http://2 y [http://3] http://2}]`},
	} {
		if got := fmt.Sprint(units(stored(t, tc.text))); got != tc.want {
			t.Errorf("%.60s: %s, want %s", tc.text, got, tc.want)
		}
	}
	if got := units(nil); len(got) != 1 || got[0].model != "" {
		t.Errorf("nothing declared: %+v", got)
	}
	d := stored(t, ownPools)
	all := units(d)
	if got := all[2].fit(planner.Defaults(), d.in("b")); got.Mode != planner.ModeOff || !strings.Contains(all[2].plansFor(), "pool a has the same model") || all[1].plansFor() != "" {
		t.Errorf("the second pool of a model: %+v, %q", got.Mode, all[2].plansFor())
	}
}

// Which workers may start, and whether they change their roles as they run, is a matter of their engines.
func TestFit(t *testing.T) {
	const vllm = `"engine":{"backend":"vllm","server":{"command":"vllm serve"}}`
	for _, tc := range []struct {
		name, pool               string // of a pool p, after its model
		prefill, decode, restart bool   // may not start; a change of role is a restart
	}{
		{"our own", `"prefill":1,"decode":1`, false, false, false},
		{"nothing yet", `"decode":0`, false, false, false},
		{"of our own, with other options for decode", `"prefill":1,"decode":1,"decode_spec":{"engine":{"max_num_seqs":4}}`, false, false, true},
		{"vllm that dynamod starts", `"prefill":1,"decode":1,` + vllm, false, false, true},
		{"a server that runs already", `"decode":1,"engine":{"backend":"vllm","server":{"url":"http://x"}}`, true, true, true},
		{"none yet of a server that runs already", `"decode":0,"engine":{"backend":"vllm","server":{"url":"http://x"}}`, true, true, true},
		{"an engine that exchanges no KV", `"decode":1,"engine":{"backend":"openai","server":{"command":"serve"}}`, true, false, true},
		{"a connector of none", `"decode":1,"engine":{"backend":"vllm","server":{"command":"vllm serve","connector":"none"}}`, true, false, true},
		{"decode by its url, prefill by its command", `"prefill":1,"decode":1,` + vllm + `,"decode_spec":{"engine":{"server":{"url":"http://x"}}}`, true, true, true},
	} {
		d := stored(t, `{"prefill":0,"decode":0,"pools":{"p":{"model":{"name":"x"},`+tc.pool+`}}}`).in("p")
		got := (unit{pool: "p", by: "p"}).fit(planner.Defaults(), d)
		if got.Prefill.Fixed != tc.prefill || got.Decode.Fixed != tc.decode || got.KeepRoles != tc.restart {
			t.Errorf("%s: prefill fixed %v, decode fixed %v, restarts %v", tc.name, got.Prefill.Fixed, got.Decode.Fixed, got.KeepRoles)
		}
	}
	d := stored(t, ownPools)
	if got := units(d)[3].fit(planner.Defaults(), d.in("http://2")); !got.Prefill.Fixed || !got.Decode.Fixed {
		t.Errorf("attached servers: %+v", got)
	}
	if got := units(d)[0].fit(planner.Defaults(), d.in("")); got.Decode.Own != 1 || got.Prefill.Fixed {
		t.Errorf("own workers beside attached ones: %+v", got)
	}
	own := cluster.PlannerSpec{TTFT: time.Second, ITL: 2 * time.Second, PrefillMin: 3, PrefillMax: 4, DecodeMin: 5, DecodeMax: 6}
	text, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	cfg := planner.Defaults()
	cfg.Mode, cfg.Prefill.Max = planner.ModeAct, 9
	got := (unit{}).fit(cfg, stored(t, `{"pools":{"p":{"model":{"name":"x"},"decode":1,"planner":`+string(text)+`}}}`).in("p"))
	if got.Mode != planner.ModeAct || got.Target.TTFT != own.TTFT || got.Target.ITL != own.ITL || got.Target.Percentile != 0.95 ||
		[4]int{got.Prefill.Min, got.Prefill.Max, got.Decode.Min, got.Decode.Max} != [4]int{3, 4, 5, 6} {
		t.Errorf("overridden: %+v", got)
	}
	got = (unit{}).fit(cfg, stored(t, `{"pools":{"p":{"model":{"name":"x"},"decode":1,"planner":{"mode":"off"}}}}`).in("p"))
	if got.Mode != planner.ModeOff || got.Target != cfg.Target || got.Prefill.Max != 9 || got.Decode.Min != 1 {
		t.Errorf("inherited: %+v", got)
	}
}

// What a unit sees: its own workers, those beside them, and no others.
func TestViewOfUnit(t *testing.T) {
	v := View{Declared: stored(t, ownPools), Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{"old": {Name: "old"}}}
	add := func(name, pool string, role cluster.Role) {
		v.Assignments[name] = cluster.Assignment{Name: name, Pool: pool, Role: role}
		v.Status[name] = cluster.WorkerStatus{Name: name, Role: role, State: cluster.StateReady}
	}
	add("main", "", cluster.RoleDecode)
	add("encode", "", cluster.RoleEncode)
	add("a", "a", cluster.RoleDecode)
	add("b", "b", cluster.RolePrefill)
	add("one", "http://1", cluster.RoleDecode)
	all := units(v.Declared)
	for i, want := range []string{"[main one] 1 shared", "[a b] 0 alone", "[b] 1 alone"} {
		u := v.of(all[i])
		shared := map[bool]string{true: "shared", false: "alone"}[u.Shared]
		if got := fmt.Sprintf("%v %d %s", sortedNames(u.Assignments), u.Declared.Prefill, shared); got != want {
			t.Errorf("%v: %s, want %s", all[i], got, want)
		}
		if len(u.Status) != len(u.Assignments) {
			t.Errorf("%v: %d statuses", all[i], len(u.Status))
		}
	}
	main := v.of(all[0])
	if main.attached(main.Assignments["main"]) || !main.attached(main.Assignments["one"]) || !main.own(main.Assignments["main"]) {
		t.Error("attached servers are taken for own workers")
	}
}

// The prompts that wait in the queue of all pools are those of a pool as far as its decode workers wait for prompts.
func TestQueueOfPools(t *testing.T) {
	for _, shared := range []bool{false, true} {
		g := NewGatherer(t0, nil)
		st := status("worker-1", cluster.RoleDecode, 0, 1, 0)
		st.Stats.RemoteWait = 2
		g.Worker(t0, st)
		g.Queue(cluster.QueueDepth{Waiting: 9})
		tell(g, 1, 1, 1)
		v := view(st)
		v.Shared = shared
		if o := g.Observe(at(1), v); o.Prefill.Queued != map[bool]int{false: 9, true: 2}[shared] {
			t.Errorf("shared %v: %d wait", shared, o.Prefill.Queued)
		}
	}
}

// Others' servers that do not serve are not there, and their starts are nobody's.
func TestAttachedThatIsAway(t *testing.T) {
	g := NewGatherer(t0, nil)
	st := status("worker-1", cluster.RoleDecode, 0, 1, 0)
	st.State = cluster.StatePending
	v := view(st)
	a := v.Assignments["worker-1"]
	a.Pool = "http://1"
	v.Assignments["worker-1"], v.Assignments["worker-2"] = a, cluster.Assignment{Name: "worker-2", Pool: "http://2", Role: cluster.RoleDecode, Desire: cluster.DesireRun}
	o := g.Observe(at(1), v)
	if o.Decode.In(planner.WorkerLost) != 2 || len(o.Pending) != 0 || !o.Decode.Workers[0].Attached || v.beside(o) != (planner.Plan{}) {
		t.Errorf("%+v", o)
	}
}

// Only what declares something else of a pool concerns it, and what declares nothing else concerns all.
func TestConcerns(t *testing.T) {
	before := stored(t, ownPools).whole
	scaled := before
	view := scaled.In("a")
	view.Decode = 3
	scaled.Put("a", view)
	scaled.Generation, scaled.UpdatedBy, scaled.Flip = 9, "x", cluster.Flip{Worker: "w"}
	restarted := before
	restarted.Restarts++
	for _, tc := range []struct {
		pool  string
		after cluster.Topology
		want  bool
	}{{"a", scaled, true}, {"b", scaled, false}, {"", scaled, false}, {"", before, true}, {"b", restarted, true}} {
		if got := concerns(tc.pool, before, tc.after); got != tc.want {
			t.Errorf("%q: %v", tc.pool, got)
		}
	}
}

// The next leader knows a change of a pool by its signature, and takes none for that of another pool.
func TestSignatureOfPools(t *testing.T) {
	d := stored(t, `{"model":{"name":"m"},"decode":1,"pools":{"a":{"model":{"name":"x"},"decode":2}},"generation":5,"updated_by":"planner@n1","reason":"planner of pool a: 1 aggregated -> 2 aggregated: start 1 decode, because the load needs it"}`)
	done := planner.Change{Generation: 4, To: planner.Plan{Decode: 1}, Cause: planner.CauseForecast, Result: planner.ResultUnderWay}
	unknown := done
	unknown.Result, unknown.To.Decode = planner.ResultUnknown, 7
	for _, tc := range []struct {
		pool    string
		changes []planner.Change
		want    string // newest change
		touched int64
	}{
		{"a", nil, "1 aggregated -> 2 aggregated: start 1 decode, because the load needs it", 5},
		{"", nil, "", 0},
		{"", []planner.Change{done}, done.Words(), 4},
		{"", []planner.Change{unknown}, unknown.Words(), 0},
	} {
		o := &orders{actor: &actor{}, pool: tc.pool, changes: tc.changes}
		o.see(t0, d.in(tc.pool))
		got := ""
		if n := len(o.changes); n > 0 {
			got = o.changes[n-1].Words()
		}
		if got != tc.want || o.touched != tc.touched {
			t.Errorf("%q: %q, touched by %d", tc.pool, got, o.touched)
		}
	}
}
