package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func TestPathsAreAskedFromTheWorkers(t *testing.T) {
	c := lab(t)
	for name, role := range map[string]cluster.Role{"worker-1": cluster.RolePrefill, "worker-2": cluster.RolePrefill, "worker-3": cluster.RoleDecode} {
		plane(t, c, role.Component(), cluster.EndpointPaths, "n1", name, grant(t, c, time.Minute), func(_ context.Context, r *requestplane.Request, send func(any) error) error {
			var req protocol.PathsRequest
			switch err := r.Decode(&req); {
			case err != nil:
				return err
			case name == "worker-2":
				return errors.New("no")
			case req.Peer != "" && !req.Test:
				return errors.New("a path is asked for without a test")
			case req.Peer != "":
				return send(cluster.Path{From: name, To: req.Peer, Transport: "shm"})
			}
			for _, to := range []string{"worker-3", "worker-4"} {
				if err := send(cluster.Path{From: name, To: to}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	v := view(t, c)
	if p, err := c.Path(t.Context(), v, "worker-3", "worker-1"); err != nil || p.From != "worker-3" || p.To != "worker-1" || p.Transport != "shm" {
		t.Errorf("Path() = %+v, %v", p, err)
	}
	if _, err := c.Path(t.Context(), v, "worker-9", "worker-1"); !errors.Is(err, ErrNoPaths) {
		t.Errorf("Path() of nobody: %v", err)
	}
	paths, failed := c.Paths(t.Context(), v, cluster.RolePrefill)
	if len(paths) != 1 || len(paths["worker-1"]) != 2 || len(failed) != 1 || failed["worker-2"] == nil {
		t.Errorf("Paths() = %v, %v", paths, failed)
	}
	m := c.Measure(t.Context(), v, time.Minute, 100)
	if len(m.Paths) != 1 || m.Paths[0].From != "worker-1" || m.Paths[0].To != "worker-3" || len(m.Failed) != 1 || m.Left != 0 {
		t.Errorf("Measure() = %+v", m)
	}
	if m := c.Measure(t.Context(), v, time.Minute, 1); len(m.Paths)+len(m.Failed) != 1 || m.Left != 1 {
		t.Errorf("Measure() of one = %+v", m)
	}
	// Workers of two models exchange nothing, and servers of other engines do it by themselves.
	for name, a := range map[string]cluster.Assignment{
		"another model": {Model: cluster.ModelSpec{Name: "n"}}, "a server": {Model: cluster.ModelSpec{Name: "m"}, Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM}},
	} {
		for _, worker := range []string{"worker-1", "worker-3"} {
			v.Assignments = map[string]cluster.Assignment{"worker-1": {Model: cluster.ModelSpec{Name: "m"}}, "worker-3": {Model: cluster.ModelSpec{Name: "m"}}}
			if m := c.Measure(t.Context(), v, time.Minute, 100); len(m.Paths) != 1 {
				t.Errorf("Measure() within a model = %+v", m)
			}
			v.Assignments[worker] = a
			if m := c.Measure(t.Context(), v, time.Minute, 100); len(m.Paths) != 0 {
				t.Errorf("Measure() with %s = %+v", name, m)
			}
		}
	}
}
