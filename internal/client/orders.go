package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Drain asks a worker to finish and to stay drained. A zero deadline means none; with
// force, what still runs at the deadline is cut off, at once if there is none.
func (c *Cluster) Drain(ctx context.Context, worker string, deadline time.Time, force bool) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		if a.Desire == cluster.DesireRemove {
			return fmt.Errorf("%s is being removed already", worker)
		}
		a.Desire, a.DrainDeadline, a.DrainForce, a.Replace = cluster.DesireDrain, deadline, force, false
		return nil
	})
}

// Replace asks for a successor of a worker: when that serves, the worker drains and
// goes. Deadline and force are those of its drain.
func (c *Cluster) Replace(ctx context.Context, worker string, deadline time.Time, force bool) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		switch {
		case a.Desire == cluster.DesireRemove && !a.Replace:
			return fmt.Errorf("%s is being removed already", worker)
		case a.Desire == cluster.DesireDrain:
			return fmt.Errorf("%s is drained already: nothing runs that a successor could take over", worker)
		case a.Replaces != "":
			return fmt.Errorf("%s is itself the successor of %s, which has not gone yet", worker, a.Replaces)
		}
		a.Replace, a.DrainDeadline, a.DrainForce = true, deadline, force
		return nil
	})
}

// Resume takes a drain or a replacement back, or starts a drained worker again.
func (c *Cluster) Resume(ctx context.Context, worker string) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		if a.Desire == cluster.DesireRemove && !a.Replace {
			return fmt.Errorf("%s is being removed: raise the scale instead", worker)
		}
		a.Desire, a.DrainDeadline, a.DrainForce, a.Replace = cluster.DesireRun, time.Time{}, false, false
		return nil
	})
}

// Restart asks a worker to drain and to start again, and returns the generation under
// which it then runs.
func (c *Cluster) Restart(ctx context.Context, worker string) (generation int64, err error) {
	err = c.Order(ctx, worker, func(a *cluster.Assignment) error {
		switch {
		case a.Desire == cluster.DesireDrain:
			return fmt.Errorf("%s is drained: it starts when it is resumed", worker)
		case a.Desire == cluster.DesireRemove:
			return fmt.Errorf("%s is being removed", worker)
		}
		if a.Last == (cluster.Form{}) {
			a.Last = a.Form()
		}
		a.Refused = cluster.Refusal{}
		a.Starts++
		a.Generation++
		generation = a.Generation
		return nil
	})
	return generation, err
}

// Cordon asks that a node run no workers: those that it has get successors elsewhere,
// drain and go. Deadline and force are those of their drains.
func (c *Cluster) Cordon(ctx context.Context, node string, deadline time.Time, force bool) error {
	k := cluster.Cordon{Node: node, At: time.Now(), By: whoAmI(), Deadline: deadline, Force: force}
	_, err := store.PutJSON(ctx, c.store, cluster.CordonKey(c.Namespace, node), k)
	return err
}

// Uncordon takes that back. Workers that have not left stay.
func (c *Cluster) Uncordon(ctx context.Context, node string) error {
	return c.store.Delete(ctx, cluster.CordonKey(c.Namespace, node))
}

// ErrNoFlip is returned for a worker whose role cannot change now.
var ErrNoFlip = errors.New("its role cannot change now")

// SetRole declares one worker more of a role and one less of the worker's own, and that
// it is this worker that changes. It returns what is declared now.
func (c *Cluster) SetRole(ctx context.Context, worker string, role cluster.Role) (cluster.Topology, error) {
	a, _, err := store.GetJSON[cluster.Assignment](ctx, c.store, cluster.AssignmentKey(c.Namespace, worker))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return cluster.Topology{}, fmt.Errorf("%w in cluster %s", ErrNoWorker, c.Name)
	case err != nil:
		return cluster.Topology{}, err
	case a.Desire == cluster.DesireRemove:
		return cluster.Topology{}, fmt.Errorf("%w: it is being removed", ErrNoFlip)
	case a.Node == "":
		return cluster.Topology{}, fmt.Errorf("%w: it runs on no node", ErrNoFlip)
	case a.Replaces != "" || a.Replace:
		return cluster.Topology{}, fmt.Errorf("%w: it replaces another worker, or is replaced", ErrNoFlip)
	}
	return c.Declare(ctx, func(t *cluster.Topology, _ bool) error {
		counts := map[cluster.Role]*int{cluster.RolePrefill: &t.Prefill, cluster.RoleDecode: &t.Decode}
		from, to := counts[a.Role], counts[role]
		if from == nil || to == nil {
			return fmt.Errorf("%w: from %s to %s", ErrNoFlip, a.Role, role)
		}
		*from--
		*to++
		t.Flip = cluster.Flip{Worker: worker, Role: role, Generation: t.Generation + 1}
		return nil
	})
}
