package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Encode workers are refused if the cards of those who serve the model say that it takes no
// images, and only then: what nobody serves yet is found out by the nodes.
func TestCheckSight(t *testing.T) {
	text := cluster.ModelSpec{Name: "m", Path: "/text"}
	sees := &cluster.ImageCard{Token: 7}
	type worker struct {
		model      cluster.ModelSpec
		role       cluster.Role
		generation int64 // of what it runs; 1 is assigned
		images     *cluster.ImageCard
		noCard     bool
	}
	decode := worker{model: text, role: cluster.RoleDecode, generation: 1}
	with := func(change func(*worker)) worker { w := decode; change(&w); return w }
	for name, tc := range map[string]struct {
		workers []worker
		before  int
		refused bool
	}{
		"nobody serves":               {},
		"without a card":              {workers: []worker{with(func(w *worker) { w.noCard = true })}},
		"text":                        {workers: []worker{decode}, refused: true},
		"text with encode workers":    {workers: []worker{decode}, before: 1},
		"it sees":                     {workers: []worker{with(func(w *worker) { w.images = sees })}},
		"one of two sees":             {workers: []worker{decode, with(func(w *worker) { w.images = sees })}},
		"another model":               {workers: []worker{with(func(w *worker) { w.model.Path = "/other" })}},
		"the model is still to come":  {workers: []worker{with(func(w *worker) { w.generation = 0 })}},
		"only an encode worker":       {workers: []worker{with(func(w *worker) { w.role = cluster.RoleEncode })}},
		"the sight of another model":  {workers: []worker{decode, with(func(w *worker) { w.model.Path, w.images = "/other", sees })}, refused: true},
		"text, also of a prefill one": {workers: []worker{with(func(w *worker) { w.role = cluster.RolePrefill })}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := lab(t)
			for i, w := range tc.workers {
				id := grant(t, c, time.Minute)
				assign(t, c, cluster.Assignment{Name: cluster.WorkerName(i + 1), Role: w.role, Model: w.model, Node: "id-1", Desire: cluster.DesireRun, Generation: 1})
				put(t, c, cluster.StatusKey(c.Namespace, cluster.WorkerName(i+1)), cluster.WorkerStatus{Name: cluster.WorkerName(i + 1), Role: w.role, InstanceID: id, State: cluster.StateReady, Generation: w.generation}, id)
				if !w.noCard {
					put(t, c, cluster.CardKey(c.Namespace, string(w.role), cluster.EndpointGenerate, id), cluster.ModelCard{Images: w.images}, id)
				}
			}
			before := cluster.Topology{Model: text, Decode: 1, Encode: tc.before}
			put(t, c, cluster.TopologyKey(c.Namespace), before, 0)
			after := before
			after.Encode = 1
			if err := c.CheckSight(t.Context(), before, after); errors.Is(err, ErrNoSight) != tc.refused || err != nil && !tc.refused {
				t.Errorf("it says %v", err)
			}
			_, err := c.Scale(t.Context(), "", cluster.Counts{cluster.RoleEncode: 1}, "test")
			if errors.Is(err, ErrNoSight) != tc.refused || err != nil && !tc.refused {
				t.Errorf("scaled: %v", err)
			}
			if topo, err := c.Topology(t.Context()); err != nil || tc.refused && !topo.Equal(before) {
				t.Errorf("declared %+v, %v", topo, err)
			}
		})
	}
}

// Encode workers that stay are refused, too, if the model beside them becomes one of text.
func TestCheckSightOfANewModel(t *testing.T) {
	c := lab(t)
	id := grant(t, c, time.Minute)
	text := cluster.ModelSpec{Name: "m", Path: "/text"}
	assign(t, c, cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode, Model: text, Node: "id-1", Desire: cluster.DesireRun, Generation: 1})
	put(t, c, cluster.StatusKey(c.Namespace, "worker-1"), cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, InstanceID: id, State: cluster.StateReady, Generation: 1}, id)
	put(t, c, cluster.CardKey(c.Namespace, string(cluster.RoleDecode), cluster.EndpointGenerate, id), cluster.ModelCard{}, id)
	before := cluster.Topology{Model: cluster.ModelSpec{Name: "m", Path: "/sees"}, Decode: 1, Encode: 1}
	after := before
	after.Model = text
	if err := c.CheckSight(t.Context(), before, after); !errors.Is(err, ErrNoSight) || !strings.Contains(err.Error(), "as worker-1 serves it") {
		t.Errorf("it says %v", err)
	}
}
