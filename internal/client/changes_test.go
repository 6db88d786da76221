package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Scale, restart of all workers and settings, as the dashboard orders them.
func TestLiveActsOnTheCluster(t *testing.T) {
	c := lab(t)
	l := live(t, c, LiveOptions{})
	act := func(a Action) error { return l.Act(t.Context(), a) }
	decode := func(n int) cluster.Counts { return cluster.Counts{cluster.RoleDecode: n} }
	if err := act(Action{Kind: ActScale, Workers: decode(5)}); !errors.Is(err, ErrUndeclared) {
		t.Errorf("scale of nothing: %v", err)
	}
	if err := act(Action{Kind: ActRestartAll}); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("restart of nothing: %v", err)
	}
	if _, err := c.Declare(t.Context(), func(t *cluster.Topology, _ bool) error {
		t.Model, t.Prefill, t.Decode = cluster.ModelSpec{Name: "m", Path: "/m"}, 2, 3
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := act(Action{Kind: ActScale, Workers: decode(5)}); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]Action{"too many": {Kind: ActScale, Workers: decode(1 << 20)}, "prefill alone": {Kind: ActScale, Workers: decode(0)}} {
		if err := act(a); err == nil || !strings.Contains(err.Error(), "decode") {
			t.Errorf("%s: %v", name, err)
		}
	}
	topo, err := c.Topology(t.Context())
	if err != nil || topo.Prefill != 2 || topo.Decode != 5 || topo.Reason != "dynctl top: scale decode=5" {
		t.Errorf("scaled: %+v %v", topo, err)
	}
	if err := act(Action{Kind: ActScale, Workers: cluster.Counts{cluster.RoleEncode: 3, cluster.RolePrefill: 1}}); err != nil {
		t.Fatal(err)
	}
	if topo, err = c.Topology(t.Context()); err != nil || topo.Prefill != 1 || topo.Decode != 5 || topo.Encode != 3 || topo.Reason != "dynctl top: scale prefill=1 encode=3" {
		t.Errorf("scaled: %+v %v", topo, err)
	}
	if err := act(Action{Kind: ActRestartAll}); err != nil {
		t.Fatal(err)
	}
	if topo, err = c.Topology(t.Context()); err != nil || topo.Restarts != 1 || topo.Decode != 5 {
		t.Errorf("restarted: %+v %v", topo, err)
	}

	if err := act(Action{Kind: ActSet, Setting: "disagg.strategy", Value: "prefill-first"}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []Action{{Kind: ActSet, Setting: "disagg.strategy", Value: "x"}, {Kind: ActSet, Setting: "disagg.strateg", Value: "prefill-first"}} {
		if err := act(a); err == nil || !strings.Contains(err.Error(), "disagg.strategy") {
			t.Errorf("%s: %v", a.Text(), err)
		}
	}
	if s, err := c.Settings(t.Context()); err != nil || string(s["disagg.strategy"]) != `"prefill-first"` {
		t.Errorf("settings %s %v", s, err)
	}
	for _, want := range []string{"disagg.strategy=", "disagg.strategy=prefill-first"} {
		if !slices.Contains(SettingWords(), want) {
			t.Errorf("%s is not completed", want)
		}
	}
}
