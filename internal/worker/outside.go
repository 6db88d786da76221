package worker

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker/role"
	"github.com/dynctl/dynctl/internal/worker/served"
)

// outside is the core of a worker whose engine is a server that others wrote. It has no KV
// plane: servers exchange KV themselves.
type outside struct {
	loaded *Loaded
	served *served.Server
}

// newOutside takes a server into use. What it has begun is released by back.
func (w *Worker) newOutside(loaded *Loaded, back *undo.Stack) *outside {
	back.Push("let go of the server", func(context.Context) error {
		loaded.Release()
		return nil
	})
	cfg := *loaded.Server
	cfg.Log, cfg.Encoded = w.log, w.encodings.put
	if cfg.Events != nil {
		cfg.Events.Tell(w.events)
	}
	w.board.update(func(st *cluster.WorkerStatus) { st.TensorParallel = max(cfg.Facts.TensorParallel, 1) })
	return &outside{loaded: loaded, served: served.New(cfg)}
}

func (c *outside) run(ctx context.Context) error { return c.served.Run(ctx) }

func (c *outside) begin(_ context.Context, t *term) (err error) {
	t.duty, err = c.served.NewRole(t.role, &role.Term{
		Host: t, Worker: t.cfg.Assignment.Name, Taints: t.cfg.Taints, Log: t.log, Meter: t.meter,
		Model: role.Model{Digest: c.loaded.Card.Digest}, Bus: t.cfg.Bus, Settings: t.cfg.Settings,
	})
	return err
}

func (c *outside) forget(*term) {}

func (c *outside) model() (cluster.ModelCard, map[string][]byte) {
	return c.loaded.Card, c.loaded.Files
}

func (c *outside) describe(card *cluster.ModelCard) { c.served.Describe(card) }

func (c *outside) figures(as cluster.Role) cluster.WorkerStats {
	st := c.served.Stats()
	if !as.HoldsKV() {
		st.KVActive, st.KVTotal, st.BlockSize = 0, 0, 0
	}
	return st
}

func (c *outside) canary(HealthCheck) *runtime.Canary { return nil } // Run asks the server

func (c *outside) agent() *nixl.Agent { return nil }

func (c *outside) stopAdmission(context.Context) error {
	c.served.StopAdmission()
	return nil
}

func (c *outside) resumeAdmission(context.Context) error {
	c.served.ResumeAdmission()
	return nil
}

func (c *outside) open(_ context.Context, limit int) ([]cluster.OpenSequence, int, error) {
	all, n := c.served.Sequences(limit)
	open := make([]cluster.OpenSequence, len(all))
	for i, s := range all {
		open[i] = cluster.OpenSequence{RequestID: s.RequestID, OutTokens: s.OutTokens, AgeMS: s.AgeMS}
	}
	return open, n, nil
}

func (c *outside) awaited() int { return 0 }

// moving counts what the server itself has in hand: whatever moves KV is among it.
func (c *outside) moving(ctx context.Context) (in, out int) { return 0, c.served.AtServer(ctx) }

func (c *outside) sleeper() sleeper { return c.served }

func (c *outside) clear(context.Context) (int, error) { return 0, served.ErrNoClear }

func (c *outside) resident(ctx context.Context, at func()) ([]uint64, error) {
	return c.served.Resident(ctx, at)
}

func (c *outside) activity(_ context.Context, limit int) (a cluster.Activity, err error) {
	a.Sequences, a.SequencesTotal = c.served.Sequences(limit)
	for i := range a.Sequences {
		a.Sequences[i].RequestID = requestOf(a.Sequences[i].ID)
	}
	a.At = time.Now()
	return a, nil
}

func (c *outside) server() *cluster.ServerStatus { return c.served.Status() }

func (c *outside) paths(string) []cluster.Path { return nil }
