package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// summary is a view's workers, each as "worker-1 decode ready run".
func summary(v View) (out []string) {
	for _, w := range v.Workers() {
		s := w.Name + " " + string(w.Role) + " " + string(w.State)
		if w.Desire != "" {
			s += " " + string(w.Desire)
		}
		if w.Reason != "" {
			s += ": " + w.Reason
		}
		out = append(out, s)
	}
	return out
}

func TestViewWorkers(t *testing.T) {
	nodes := []cluster.Node{{ID: "id-1", Name: "node-1", FrontendURL: "http://a"}, {ID: "id-2", Name: "node-2"}}
	run := func(name, node string) cluster.Assignment {
		return cluster.Assignment{Name: name, Role: cluster.RoleDecode, Model: tiny, Node: node, Device: "cpu:0", Desire: cluster.DesireRun, Generation: 3}
	}
	unplaced := run("worker-10", "")
	unplaced.Unplaced = "no node is up"
	drained := run("worker-2", "id-1")
	drained.Desire = cluster.DesireDrain
	v := View{
		Nodes: nodes,
		Assignments: map[string]cluster.Assignment{
			"worker-1": run("worker-1", "id-1"), "worker-2": drained, "worker-3": run("worker-3", "id-2"),
			"worker-4": run("worker-4", "id-gone"), "worker-10": unplaced,
		},
		Status: map[string]cluster.WorkerStatus{
			"worker-1": {Name: "worker-1", Role: cluster.RoleDecode, State: cluster.StateReady, Node: "id-1"},
			"worker-2": {Name: "worker-2", Role: cluster.RoleDecode, State: cluster.StateDrained, Node: "id-1"},
			"worker-5": {Name: "worker-5", Role: cluster.RolePrefill, State: cluster.StateStopped},
		},
	}
	want := []string{
		"worker-1 decode ready run", "worker-2 decode drained drain", "worker-3 decode pending run", "worker-4 decode lost run: its node is gone",
		"worker-5 prefill stopped", "worker-10 decode pending run: no node is up",
	}
	if got := summary(v); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if w := v.Workers()[2]; w.Model != "tiny" || w.Node != "id-2" || w.Device != "cpu:0" || w.Generation != 3 {
		t.Errorf("a pending worker says what is known: %+v", w)
	}
	if v.NodeName("id-2") != "node-2" || v.NodeName("id-9") != "id-9" {
		t.Error("names of nodes")
	}
	if got := v.Frontends(); !slices.Equal(got, []string{"http://a"}) {
		t.Errorf("frontends %q", got)
	}
	if w := (View{}).Workers(); w == nil || len(w) != 0 {
		t.Errorf("no workers are %v, want an empty list", w)
	}
}

func TestWatchFollows(t *testing.T) {
	c := lab(t)
	w, err := c.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if v := w.View(); v.Topology != nil || len(v.Nodes)+len(v.Assignments)+len(v.Status)+len(v.Instances) > 0 || v.Nodes == nil {
		t.Errorf("empty cluster: %+v", v)
	}
	// All kinds of keys arrive, and those of other namespaces do not.
	lease := grant(t, c, time.Minute)
	put(t, c, cluster.TopologyKey(c.Namespace), cluster.Topology{Model: tiny, Decode: 1}, 0)
	put(t, c, cluster.TopologyKey(c.Namespace)+"-other", cluster.Topology{Decode: 99}, 0)
	put(t, c, cluster.NodeKey(c.Namespace+"-10"), cluster.Node{ID: c.Namespace + "-10", Name: "node-10", Namespace: c.Namespace}, 0)
	put(t, c, cluster.NodeKey(c.Namespace+"-2"), cluster.Node{ID: c.Namespace + "-2", Name: "node-2", Namespace: c.Namespace}, 0)
	put(t, c, cluster.NodeKey(c.Namespace+"-x"), cluster.Node{ID: "x", Name: "node-x", Namespace: "another"}, 0)
	assign(t, c, cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode, Desire: cluster.DesireRun})
	put(t, c, cluster.StatusKey(c.Namespace, "worker-1"), cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, State: cluster.StateReady}, lease)
	inst := cluster.Instance{Namespace: c.Namespace, Component: "decode", Endpoint: "stats", InstanceID: lease}
	put(t, c, inst.Key(), inst, lease)
	until := func(what string, cond func(View) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Until(ctx, time.Minute, func(v View) (bool, error) { return cond(v), nil }); err != nil {
			t.Fatalf("never: %s: %v; %+v", what, err, w.View())
		}
	}
	until("everything is there", func(v View) bool {
		return v.Topology != nil && v.Topology.Decode == 1 && len(v.Nodes) == 2 && v.Nodes[0].Name == "node-2" &&
			slices.Equal(summary(v), []string{"worker-1 decode ready run"}) && len(v.Instances) == 1
	})
	// A lost lease takes status and instance with it.
	if err := c.store.RevokeLease(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	until("the worker is gone", func(v View) bool {
		return len(v.Instances) == 0 && slices.Equal(summary(v), []string{"worker-1 decode pending run"})
	})
	if since, _, err := w.Stale(); !since.IsZero() || err != nil {
		t.Errorf("stale since %s: %v", since, err)
	}
	once, err := c.View(t.Context())
	if err != nil || len(once.Nodes) != 2 {
		t.Errorf("read once: %+v %v", once, err)
	}
}

func TestUntil(t *testing.T) {
	c := lab(t)
	w, err := c.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := w.Until(t.Context(), time.Minute, func(View) (bool, error) { return false, no }); !errors.Is(err, no) {
		t.Errorf("an error of the condition: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(no)
	if err := w.Until(ctx, time.Minute, func(View) (bool, error) { return true, nil }); err != nil {
		t.Errorf("a condition that holds already: %v", err)
	}
	if err := w.Until(ctx, time.Minute, func(View) (bool, error) { return false, nil }); !errors.Is(err, no) {
		t.Errorf("the end of the context: %v", err)
	}
	// Without a change it looks again after the interval.
	n := 0
	if err := w.Until(t.Context(), time.Millisecond, func(View) (bool, error) { n++; return n == 3, nil }); err != nil || n != 3 {
		t.Errorf("%d times: %v", n, err)
	}
	w.Close()
	w.Close()
	if err := w.Until(t.Context(), time.Minute, func(View) (bool, error) { return false, nil }); !errors.Is(err, errEnded) {
		t.Errorf("after Close: %v", err)
	}
}

func TestWatchFailsWithoutAStore(t *testing.T) {
	c := lab(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w, err := c.Watch(ctx); err == nil {
		w.Close()
		t.Error("a watch in a context that has ended")
	}
}

func TestCompareNodes(t *testing.T) {
	want := []string{"a", "node-1", "node-2", "node-10"}
	got := []string{"node-10", "node-2", "a", "node-1"}
	slices.SortFunc(got, compareNodes)
	if !slices.Equal(got, want) || compareNodes("x", "x") != 0 {
		t.Errorf("got %q", got)
	}
}
