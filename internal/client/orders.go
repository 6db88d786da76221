package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Drain orders a worker to finish its requests and stay drained. A zero deadline means no
// limit. With force, requests that still run at the deadline are cut off, or at once if
// there is none.
func (c *Cluster) Drain(ctx context.Context, worker string, deadline time.Time, force bool) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		if a.Desire == cluster.DesireRemove {
			return fmt.Errorf("%s is being removed already", worker)
		}
		a.Desire, a.Sleep, a.DrainDeadline, a.DrainForce, a.Replace = cluster.DesireDrain, 0, deadline, force, false
		return nil
	})
}

// Sleep orders a worker to finish its requests and then put its server to sleep at a level;
// see [cluster.SleepLight]. A zero deadline means no limit. A drained worker starts for it.
func (c *Cluster) Sleep(ctx context.Context, worker string, level int, deadline time.Time) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		now := 0
		if a.Desire != cluster.DesireRun { // else it wakes, or has woken a moment ago
			now = cmp.Or(a.Asleep, a.SleepLevel())
		}
		switch {
		case a.Desire == cluster.DesireRemove:
			return fmt.Errorf("%s is being removed already", worker)
		case now > 0 && now != level:
			return fmt.Errorf("%s sleeps at level %d: it wakes before it sleeps at another one", worker, now)
		}
		if err := CanSleep(a.Engine); err != nil {
			return fmt.Errorf("%s: %w", worker, err)
		}
		a.Desire, a.Sleep, a.DrainDeadline, a.DrainForce, a.Replace = cluster.DesireDrain, level, deadline, false, false
		return nil
	})
}

// ErrNoSleep is wrapped by the error of [CanSleep].
var ErrNoSleep = errors.New("it cannot sleep")

// CanSleep returns why no worker with an engine can sleep, nil if some can.
func CanSleep(e cluster.EngineSpec) error {
	switch {
	case e.Sleeps():
		return nil
	case e.External():
		return fmt.Errorf("%w: servers of %s do not sleep", ErrNoSleep, e.Backend)
	}
	return fmt.Errorf("%w: the built-in engine does not sleep; a drain gives its memory back", ErrNoSleep)
}

// Wake orders a worker whose server sleeps to wake it and serve, whoever has put it to sleep. It
// takes an order to sleep back that is not carried out yet.
func (c *Cluster) Wake(ctx context.Context, worker string) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		if a.Desire == cluster.DesireRemove {
			return fmt.Errorf("%s is being removed: raise the scale instead", worker)
		}
		if a.Desire == cluster.DesireRun && a.Asleep == 0 {
			a.Asleep = cluster.SleepDeep // somebody else has chosen the level
		}
		a.Desire, a.Sleep, a.DrainDeadline, a.DrainForce, a.Replace = cluster.DesireRun, 0, time.Time{}, false, false
		return nil
	})
}

// Replace orders a successor for a worker. Once the successor serves, the worker drains
// and leaves. deadline and force apply to that drain as in [Cluster.Drain].
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

// Resume cancels a drain or a replacement, or starts a drained worker again.
func (c *Cluster) Resume(ctx context.Context, worker string) error {
	return c.Order(ctx, worker, func(a *cluster.Assignment) error {
		if a.Desire == cluster.DesireRemove && !a.Replace {
			return fmt.Errorf("%s is being removed: raise the scale instead", worker)
		}
		a.Desire, a.Sleep, a.DrainDeadline, a.DrainForce, a.Replace = cluster.DesireRun, 0, time.Time{}, false, false
		return nil
	})
}

// Restart orders a worker to drain and start again. It returns the generation that the
// restarted worker has.
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

// Cordon orders a node to run no workers. Its workers get successors on other nodes,
// drain and leave. deadline and force apply to their drains as in [Cluster.Drain].
func (c *Cluster) Cordon(ctx context.Context, node string, deadline time.Time, force bool) error {
	k := cluster.Cordon{Node: node, At: time.Now(), By: whoAmI(), Deadline: deadline, Force: force}
	_, err := store.PutJSON(ctx, c.store, cluster.CordonKey(c.Namespace, node), k)
	return err
}

// Uncordon cancels a cordon. Workers that have not left yet stay.
func (c *Cluster) Uncordon(ctx context.Context, node string) error {
	return c.store.Delete(ctx, cluster.CordonKey(c.Namespace, node))
}

// ErrNoFlip is returned for a worker that cannot change its role now.
var ErrNoFlip = errors.New("its role cannot change now")

// Flips returns why no worker of one role can take the other one, nil if they can.
func Flips(from, to cluster.Role) error {
	var t cluster.Topology
	for _, r := range []cluster.Role{from, to} {
		switch n, _ := t.Of(r); {
		case n == nil:
			return fmt.Errorf("%w: from %s to %s", ErrNoFlip, from, to)
		case !r.HoldsKV():
			return fmt.Errorf("%w: from %s to %s: an %s worker has only the vision tower, and no KV pool", ErrNoFlip, from, to, r)
		}
	}
	return nil
}

// SetRole moves one worker to another role: it declares one worker more of that role, one
// less of the old role, and that this worker changes. It returns the new topology.
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
	if err := Flips(a.Role, role); err != nil {
		return cluster.Topology{}, err
	}
	return c.Declare(ctx, func(t *cluster.Topology, _ bool) error {
		if _, attached := t.AttachedAt(a.Pool); attached {
			return fmt.Errorf("%w: its server is attached as a %s worker: detach it, and attach it as the other one", ErrNoFlip, a.Role)
		}
		view := t.In(a.Pool)
		from, _ := view.Of(a.Role)
		to, _ := view.Of(role)
		*from--
		*to++
		t.Put(a.Pool, view)
		t.Flip = cluster.Flip{Worker: worker, Role: role, Generation: t.Generation + 1}
		return nil
	})
}
