package simulation

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
	"github.com/dynctl/dynctl/internal/topofile"
)

func searched(t *testing.T, rate float64, budget int) *Search {
	t.Helper()
	c := compared(t, Comparison{}, budget).Config
	load := autoscalers.Load{Name: "constant", Seconds: 40, ISL: 3000, OSL: 100, Spread: 0.4, Rate: func(float64) float64 { return rate }}
	arrivals := load.Arrivals(1)
	return &Search{Config: c, Load: func() simulate.Source { return Drawn(arrivals) }, Budget: budget, Allowed: 0.05}
}

// A front has less misses with more devices, has what any topology within the budget can do with these, and says what it tried.
func TestFront(t *testing.T) {
	s := searched(t, 12, 4)
	told := 0
	s.Tried = func(n int, f Found) {
		if told++; n != told || f.Result == nil {
			t.Errorf("%d: %+v", n, f)
		}
	}
	front, err := s.Front(t.Context())
	if err != nil || len(front) < 2 || told != len(s.seen) {
		t.Fatalf("%v, %v", front, err)
	}
	for i, f := range front {
		if f.Devices > 4 || f.Devices != s.Devices(f.Topology) || f.Missed != Missed(f.Result) || i > 0 && (f.Devices <= front[i-1].Devices || f.Missed >= front[i-1].Missed) {
			t.Errorf("%d: %+v", i, f)
		}
	}
	// Every split, by trial.
	for decode := 1; decode <= 4; decode++ {
		for prefill := 0; prefill+decode <= 4; prefill++ {
			n := 0
			all := *s
			all.Tried, all.seen, all.most = nil, map[Topology]*Found{}, 4
			f, err := all.try(t.Context(), Topology{Prefill: prefill, Decode: decode}, &n)
			if err != nil {
				t.Fatal(err)
			}
			least := 1.0
			for _, p := range front {
				if p.Devices <= f.Devices {
					least = min(least, p.Missed)
				}
			}
			if f.Missed < least {
				t.Errorf("%s misses %.3f, the front %.3f", f.Topology, f.Missed, least)
			}
		}
	}
}

// With profiles of workers of one device and of two, a search chooses for each role. Here two devices make steps three
// times as fast, and an ITL that one device cannot keep: only decode workers of two devices are in question.
func TestFrontOfProfiles(t *testing.T) {
	s := searched(t, 10, 6)
	one, two := *s.Config.Profile, *s.Config.Profile
	two.Devices = 2
	for _, v := range []*float64{&two.Step.Step, &two.Step.Decode, &two.Step.DecodeContext, &two.Step.Token, &two.Step.ChunkContext} {
		*v /= 3
	}
	s.Profiles = map[int]Profiles{1: {&one, &one}, 2: {&two, &two}}
	s.Config.ITL = profile.Seconds(one.Step.Step * 0.9)
	front, err := s.Front(t.Context())
	if err != nil || len(front) == 0 {
		t.Fatal(front, err)
	}
	kinds := map[[2]int]bool{}
	for topology, f := range s.seen {
		if n := topology.Prefill*topology.PrefillTP + topology.Decode*topology.DecodeTP; n != f.Devices || n > 6 {
			t.Errorf("%s takes %d devices", topology, f.Devices)
		}
		if topology.DecodeTP == 1 && f.Missed < 0.9 {
			t.Errorf("%s misses %.2f, a step alone takes longer than the ITL", topology, f.Missed)
		}
		if topology.Prefill > 0 {
			kinds[[2]int{topology.PrefillTP, topology.DecodeTP}] = true
		}
	}
	best, _ := s.Choose(front)
	// Both roles on two devices each would take four, with which others have missed nothing by then.
	if best.Topology.DecodeTP != 2 || best.Missed > 0.05 || len(kinds) != 3 || kinds[[2]int{2, 2}] {
		t.Errorf("%s misses %.2f; tried %v", best.Topology, best.Missed, kinds)
	}
	if got := (Topology{Prefill: 1, Decode: 2, PrefillTP: 1, DecodeTP: 2}).String() + ", " + (Topology{Decode: 3, DecodeTP: 2}).String(); got != "1P(TP1)2D(TP2), 3 aggregated(TP2)" {
		t.Error(got)
	}
	s.Profiles = map[int]Profiles{1: {}, 2: {}, 3: {}, 4: {}, 5: {}}
	if _, err := s.Front(t.Context()); err == nil {
		t.Error("profiles without bounds")
	}
}

// A search ends where nothing is missed, and what is chosen holds the target with the fewest devices.
func TestChoose(t *testing.T) {
	s := searched(t, 0.5, 200)
	front, err := s.Front(t.Context())
	if err != nil || len(front) == 0 || front[len(front)-1].Missed != 0 || len(s.seen) > 30 {
		t.Fatalf("%v of %d, %v", front, len(s.seen), err)
	}
	for _, tc := range []struct {
		allowed float64
		chosen  int
		holds   bool
	}{{0.5, 0, true}, {0.2, 1, true}, {0.1, 1, true}, {0.05, 2, false}} {
		s.Allowed = tc.allowed
		front := []Found{{Devices: 1, Missed: 0.5}, {Devices: 2, Missed: 0.1}, {Devices: 4, Missed: 0.06}}
		if f, holds := s.Choose(front); f.Devices != front[tc.chosen].Devices || holds != tc.holds {
			t.Errorf("%v: %+v %v", tc.allowed, f, holds)
		}
	}
	a, b, same := &Found{Missed: 0.5}, &Found{Missed: 0.2}, &Found{Missed: 0.5}
	if better(a, b) != b || better(b, a) != b || better(a, same) != a || better(nil, a) != a || better(a, nil) != a {
		t.Error("what misses less is not the better one")
	}
	if _, err := (&Search{Budget: MaxBudget + 1}).Front(t.Context()); err == nil {
		t.Error("a budget without bounds")
	}
}

// What is found is written as a file that declares it, with what the other file says besides.
func TestFoundFile(t *testing.T) {
	base, err := topofile.Parse(topofile.Source{}, []byte("model: {name: m, path: /m}\nprefill: 7\ndecode: {workers: 9, engine: {max_num_seqs: 8}}\nrouter: {policy: random}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for topology, want := range map[Topology]string{
		{Decode: 3}:                                        "random",
		{Prefill: 2, Decode: 3}:                            "random",
		{Prefill: 2, Decode: 3, MaxLocal: 256}:             "random threshold 256",
		{Prefill: 2, Decode: 3, PrefillTP: 4, DecodeTP: 2}: "random TP4 TP2",
		{Decode: 3, PrefillTP: 4, DecodeTP: 2}:             "random TP2",
	} {
		text, err := Found{Topology: topology}.File(base)
		if err != nil {
			t.Fatal(err)
		}
		f, err := topofile.Parse(topofile.Source{}, text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		got := strings.Trim(string(f.Settings["router.policy"])+" "+string(f.Settings["disagg.conditional"])+" "+string(f.Settings["disagg.max_local_prefill_tokens"]), ` `)
		for _, spec := range []cluster.RoleSpec{f.Topology.PrefillSpec, f.Topology.DecodeSpec} {
			if n := spec.Engine.TensorParallel; n > 0 {
				got += fmt.Sprintf(" TP%d", n)
			}
		}
		if got = strings.ReplaceAll(got, `"`, ""); got != want || f.Topology.Prefill != topology.Prefill || f.Topology.Decode != 3 || f.Topology.Model.Name != "m" || !strings.Contains(string(text), "max_num_seqs: 8") {
			t.Errorf("%s: %q in\n%s", topology, got, text)
		}
	}
	var b bytes.Buffer
	r := &simulate.Result{TTFT: simulate.Quantiles{P95: 12}, Goodput: &simulate.Goodput{RequestsPerS: 3}}
	front := []Found{{Topology: Topology{Decode: 1}, Devices: 1, Missed: 0.25, Result: r}, {Topology: Topology{Prefill: 1, Decode: 2}, Devices: 3, Result: r}}
	if err := ShowFront(&b, front, front[1]); err != nil || !strings.Contains(b.String(), "| 1 | 1 aggregated | 25.0 % | 12.0 ms |") || !strings.Contains(b.String(), "| 3 | 1P2D | 0.0 % |") || strings.Count(b.String(), "chosen") != 1 {
		t.Errorf("%v\n%s", err, b.String())
	}
}
