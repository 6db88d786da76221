package controller

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// The decisions of plans in random clusters are those of the golden file: in full for
// the first clusters, as a digest for the rest. A change of the planner that is meant to
// decide differently writes it anew.
func TestPlanDecisions(t *testing.T) {
	patience.OneGoroutine(t)
	const golden = "testdata/decisions.txt"
	var out strings.Builder
	for seed := range uint64(150) {
		lines := decisions(t, seed)
		if seed < 6 {
			fmt.Fprintf(&out, "cluster %d\n%s", seed, strings.Join(lines, ""))
			continue
		}
		sum := fnv.New64a()
		for _, line := range lines {
			io.WriteString(sum, line)
		}
		fmt.Fprintf(&out, "cluster %d: %d changes, %x\n", seed, len(lines), sum.Sum64())
	}
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(lines)) {
		if got[i] != lines[i] {
			t.Fatalf("line %d is\n%s\nwant\n%s", i+1, got[i], lines[i])
		}
	}
	if len(got) != len(lines) {
		t.Errorf("%d lines, want %d", len(got), len(lines))
	}
}

// decisions lists what plans change in a random cluster.
func decisions(t *testing.T, seed uint64) (lines []string) {
	c := newChaos(t, seed)
	for step := range 25 {
		c.happen()
		for range 3 {
			for _, ch := range Plan(c.snapshot()) {
				a := ch.Assignment
				lines = append(lines, fmt.Sprintf("%d %s %s %s %s/%s: %s\n", step, a.Name, a.Role, ch.Action, a.Node, a.Device, ch.Why))
			}
			c.live(seed)
		}
	}
	return lines
}

// The device that a ranking finds is the best one of all that are compared one by one,
// also after workers have moved.
func TestRankingFindsBest(t *testing.T) {
	patience.OneGoroutine(t)
	for seed := range uint64(60) {
		c := newChaos(t, seed)
		c.encode, c.pools = seed%3 == 0, seed%4 == 1
		for range 25 {
			c.happen()
			c.live(seed)
			p := newPlanner(c.snapshot())
			for _, it := range p.work {
				for _, but := range [][]*item{nil, {it, p.successor(it)}} {
					settled := but != nil
					got, r, want := p.choose(it, settled, but...), p.rankingOf(it, settled), choice{}
					for _, h := range p.hosts {
						if !settled || !p.Settling[h.ID] || h.ID == it.Node {
							want = p.better(r, want, p.within(r, h, it, but), but)
						}
					}
					if got.best != want.best || want.best == nil && got.open != want.open {
						t.Fatalf("seed %d: %+v for %s, want %+v", seed, got, it.Name, want)
					}
				}
				if len(c.Nodes) > 0 {
					p.edit(it, func(a *cluster.Assignment) { a.Node, a.Device = c.Nodes[c.IntN(len(c.Nodes))].ID, "cpu:0" })
				}
			}
		}
	}
}

// live applies a plan and lets the workers follow: all of them, or in clusters with an even
// number as chaos has it.
func (c *chaos) live(seed uint64) {
	c.apply(Plan(c.snapshot()))
	if seed%2 == 0 {
		c.report()
	} else {
		c.follow()
	}
}

// A plan depends neither on the order of its input nor on an earlier plan, and leaves its
// input as it is.
func TestPlanIsPure(t *testing.T) {
	patience.OneGoroutine(t)
	for seed := range uint64(40) {
		c := newChaos(t, 1000+seed)
		c.encode, c.pools = seed%3 == 0, seed%4 == 1
		for step := range 50 {
			c.happen()
			v := c.snapshot()
			before := v
			before.Nodes, before.Assignments = slices.Clone(v.Nodes), slices.Clone(v.Assignments)
			first := Plan(v)
			if !reflect.DeepEqual(v, before) {
				t.Fatalf("seed %d step %d: the plan changed its input", seed, step)
			}
			if again := Plan(c.snapshot()); !reflect.DeepEqual(first, again) {
				t.Fatalf("seed %d step %d: %+v, in another order %+v", seed, step, first, again)
			}
			c.live(seed)
		}
	}
}

// Many workers fill many devices evenly and within their memory.
func TestPlanFillsFleet(t *testing.T) {
	v := fleet(25, 8)
	v.Topology.Decode += 150 // of 400 places, 2 for each device, 350 are taken
	w := &world{t: t, View: v}
	w.converge()
	on := map[string]int{}
	for _, a := range w.Assignments {
		on[a.Node+a.Device]++
	}
	least, most := math.MaxInt, 0
	for _, n := range on {
		least, most = min(least, n), max(most, n)
	}
	if len(w.Assignments) != 350 || len(on) != 200 || least != 1 || most != 2 {
		t.Errorf("%d workers on %d devices, each with %d to %d", len(w.Assignments), len(on), least, most)
	}
	w.Topology.Decode += 100
	for _, a := range w.Assignments {
		w.say(a.Name, func(st *cluster.WorkerStatus) { st.MemoryBytes = 30 << 30 })
	}
	placed, nowhere := 0, 0
	for _, ch := range Plan(w.View) {
		switch {
		case ch.Assignment.Node != "":
			placed++
		case ch.Assignment.Unplaced == "no device has 30.0 GiB free":
			nowhere++
		}
	}
	if placed != 50 || nowhere != 50 {
		t.Errorf("%d workers placed, %d without memory; want 50 and 50", placed, nowhere)
	}
}

// What a plan costs grows little faster than the cluster: one that changes nothing, and
// one that places every worker.
func TestPlanCost(t *testing.T) {
	patience.OneGoroutine(t)
	empty := func(v View) View {
		v.Assignments, v.Status = nil, nil
		return v
	}
	same := func(v View) View { return v }
	for name, of := range map[string]func(View) View{"nothing to do": same, "all to place": empty} {
		t.Run(name, func(t *testing.T) {
			for _, devices := range []int{1, 8} {
				compared := func(workers int) int {
					p := newPlanner(of(fleet(workers/devices, devices)))
					p.plan()
					return p.compared
				}
				small, large := compared(200), compared(1600)
				if grows := float64(large) / float64(small); grows > 8*math.Log2(1600)/math.Log2(200) {
					t.Errorf("with %d devices a node, 8 times the workers need %.1f times the comparisons, %d", devices, grows, large)
				}
			}
		})
	}
	v := fleet(1000, 1)
	if n := testing.AllocsPerRun(3, func() { Plan(v) }); n > 4000 {
		t.Errorf("a plan that changes nothing of 1,000 workers allocates %.0f times", n)
	}
}
