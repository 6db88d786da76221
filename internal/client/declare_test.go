package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestApplyAndHistory(t *testing.T) {
	c, ctx := lab(t), t.Context()
	apply := func(decode int, settings map[string]string, why string) cluster.Revision {
		t.Helper()
		r, err := c.Apply(ctx, func(r *cluster.Revision, _ bool) error {
			r.Topology.Model, r.Topology.Decode, r.Topology.Reason = tiny, decode, why
			r.Settings = map[string]json.RawMessage{}
			for k, v := range settings {
				r.Settings[k] = json.RawMessage(v)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if h, err := c.History(ctx); len(h) != 0 || err != nil {
		t.Errorf("before anything: %v %v", h, err)
	}
	apply(1, map[string]string{"a": "1", "b": `"x"`}, "first")
	if r := apply(1, map[string]string{"a": "1", "b": `"x"`}, "again"); r.Topology.Generation != 1 || r.Topology.Reason != "first" {
		t.Errorf("the same again: %+v", r.Topology)
	}
	if r := apply(1, map[string]string{"b": `"y"`, "c": "true"}, "settings"); r.Topology.Generation != 2 || r.Topology.Reason != "settings" {
		t.Errorf("settings alone: %+v", r.Topology)
	}
	now, err := c.Settings(ctx)
	if err != nil || len(now) != 2 || string(now["b"]) != `"y"` || string(now["c"]) != "true" {
		t.Errorf("settings now: %v %v", now, err)
	}
	apply(2, map[string]string{"c": "true"}, "")
	h, err := c.History(ctx)
	if err != nil || len(h) != 2 {
		t.Fatalf("history %v %v", h, err)
	}
	if r := h[0]; r.Topology.Generation != 2 || r.Topology.Reason != "settings" || string(r.Settings["b"]) != `"y"` {
		t.Errorf("the newest: %+v", r)
	}
	if r := h[1]; r.Topology.Generation != 1 || r.Topology.Reason != "first" || r.Topology.Decode != 1 || string(r.Settings["a"]) != "1" || r.Topology.UpdatedBy == "" || r.Topology.UpdatedAt.IsZero() {
		t.Errorf("the oldest: %+v", r)
	}
	for i := range 2 * historyLength {
		apply(3+i, nil, "")
	}
	h, err = c.History(ctx)
	if err != nil || len(h) != historyLength {
		t.Fatalf("%d generations are kept, want %d: %v", len(h), historyLength, err)
	}
	if first, last := h[0].Topology.Generation, h[len(h)-1].Topology.Generation; first != last+historyLength-1 || first != int64(2+2*historyLength) {
		t.Errorf("generations %d to %d are kept", last, first)
	}
}

// A change that is refused, or not valid, leaves no trace in the history.
func TestApplyRefused(t *testing.T) {
	c, ctx := lab(t), t.Context()
	if _, err := c.Declare(ctx, twoByFour); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if _, err := c.Apply(ctx, func(*cluster.Revision, bool) error { return no }); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	_, err := c.Apply(ctx, func(r *cluster.Revision, _ bool) error { r.Topology.Engine.Backend = "rocm"; return nil })
	if err == nil || !strings.Contains(err.Error(), `backend: "rocm"`) {
		t.Errorf("got %v", err)
	}
	if h, err := c.History(ctx); len(h) != 0 || err != nil {
		t.Errorf("history %v %v", h, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.History(gone); err == nil {
		t.Error("a history without a store")
	}
}

// Take copies everything that can be declared, and nothing of how it was.
func TestTake(t *testing.T) {
	c := cluster.Topology{
		Model: tiny, Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{MaxSeqs: 3}, Placement: cluster.PlacementPack,
		PrefillSpec: cluster.RoleSpec{Quantize: "q8_0"}, DecodeSpec: cluster.RoleSpec{Placement: cluster.PlacementSpread}, Generation: 9, UpdatedBy: "x", Reason: "y",
	}
	var got cluster.Topology
	got.Take(c)
	c.Generation, c.UpdatedBy, c.Reason = 0, "", ""
	if !got.Equal(c) {
		t.Errorf("got %+v, want %+v", got, c)
	}
}
