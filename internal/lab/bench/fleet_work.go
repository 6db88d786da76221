package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// requests sends requests for one token, one after the other, to all frontends in turns.
func (f *fleet) requests(ctx context.Context, s Sample) error {
	decisions, err := f.decisions(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	i := 0
	err = f.costs(ctx, s, keyCPURequest, 1e6, f.scale.fleet.requests, func() error {
		q, err := f.ask.question(ctx, 1, 1)
		if err != nil {
			return err
		}
		url := f.procs.up.Frontends[i%len(f.procs.up.Frontends)]
		i++
		begin := time.Now()
		a, err := f.client.to(url).answer(ctx, q)
		if err == nil && a.tokens != 1 {
			err = fmt.Errorf("%w: %d, asked for 1", errTokens, a.tokens)
		}
		took = append(took, time.Since(begin))
		return err
	})
	if err != nil {
		return err
	}
	s.tail(keyAnswer, took, time.Millisecond)
	decisions.await(ctx, len(took))
	s.tail(keyDecided, decisions.take(), time.Microsecond)
	return nil
}

// probe is the model of a worker that does not exist: frontends list it while it is in
// discovery, and no request asks for it.
const probe = "scale-probe"

// changes measures a worker that appears in discovery and leaves.
func (f *fleet) changes(ctx context.Context, s Sample) error {
	prefix := cluster.InstancePrefix(cluster.DefaultNamespace, cluster.RoleDecode.Component(), cluster.EndpointGenerate)
	inst, err := first[cluster.Instance](ctx, f.store, prefix)
	if err != nil {
		return err
	}
	card, err := first[cluster.ModelCard](ctx, f.store, cluster.CardPrefix(cluster.DefaultNamespace))
	if err != nil {
		return err
	}
	card.DisplayName = probe
	var seen []time.Duration
	for range f.scale.fleet.changes {
		begin := time.Now()
		id, err := f.appear(ctx, inst, card)
		if err != nil {
			return err
		}
		if err := f.listed(ctx, true); err != nil {
			return err
		}
		seen = append(seen, time.Since(begin))
		if err := f.store.RevokeLease(ctx, id); err != nil {
			return err
		}
		if err := f.listed(ctx, false); err != nil {
			return err
		}
	}
	s[keyChange] = ms(middle(seen))
	// Nobody asks the frontends meanwhile, which would cost more than the changes.
	return f.costs(ctx, s, keyChangeCPU, 1e3, f.scale.fleet.changes, func() error {
		id, err := f.appear(ctx, inst, card)
		if err != nil {
			return err
		}
		if err := f.quiet(ctx, changePause); err != nil {
			return err
		}
		if err := f.store.RevokeLease(ctx, id); err != nil {
			return err
		}
		return f.quiet(ctx, changePause)
	})
}

// changePause is longer than a change takes to be seen by a fleet that is not busy.
const changePause = 25 * time.Millisecond

// probeTTL ends the probe should this process die.
const probeTTL = time.Minute

// appear registers the worker of the probe under a lease of its own.
func (f *fleet) appear(ctx context.Context, inst cluster.Instance, card cluster.ModelCard) (cluster.InstanceID, error) {
	l, err := f.store.GrantLease(ctx, probeTTL)
	if err != nil {
		return 0, err
	}
	inst.InstanceID, inst.Worker = l.ID, probe
	if _, err := store.PutJSON(ctx, f.store, inst.Key(), inst, store.WithLease(l.ID)); err != nil {
		return 0, err
	}
	key := cluster.CardKey(inst.Namespace, inst.Component, inst.Endpoint, l.ID)
	_, err = store.PutJSON(ctx, f.store, key, card, store.WithLease(l.ID))
	return l.ID, err
}

// listed waits until every frontend lists the probe, or none does.
func (f *fleet) listed(ctx context.Context, want bool) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, url := range f.procs.up.Frontends {
		g.Go(func() error {
			for {
				_, err := f.get(ctx, url+"/v1/models/"+probe)
				if err != nil && !errors.Is(err, errStatus) || (err == nil) == want {
					return ignore(err, errStatus)
				}
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(probePoll):
				}
			}
		})
	}
	return g.Wait()
}

// probePoll is the pause between looks for the probe.
const probePoll = 2 * time.Millisecond

// ignore returns err unless it is of a kind.
func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// first decodes the first value below a prefix.
func first[T any](ctx context.Context, s store.Reader, prefix string) (v T, err error) {
	kvs, _, err := s.List(ctx, prefix)
	if err != nil {
		return v, err
	}
	if len(kvs) == 0 {
		return v, fmt.Errorf("%w below %s", store.ErrNotFound, prefix)
	}
	return store.DecodeJSON[T](kvs[0])
}

// orders replaces workers, one after the other.
func (f *fleet) orders(ctx context.Context, s Sample) error {
	p, err := store.WatchPrefix(ctx, f.store, cluster.AssignmentPrefix(cluster.DefaultNamespace), store.DecodeJSON[cluster.Assignment], f.node.log)
	if err != nil {
		return err
	}
	defer p.Close()
	wait := func(until func(map[string]cluster.Assignment) bool) error {
		for !until(p.Snapshot()) {
			select {
			case <-p.Changed():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	var names []string
	for _, a := range p.Snapshot() {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	names = names[:min(len(names), f.scale.fleet.orders)]
	var took, whole []time.Duration
	i := 0
	err = f.costs(ctx, s, keyReplaceCPU, 1e3, len(names), func() error {
		name := names[i]
		i++
		begin := time.Now()
		if _, _, err := store.UpdateJSON(ctx, f.store, cluster.AssignmentKey(cluster.DefaultNamespace, name), func(a cluster.Assignment, _ bool) (cluster.Assignment, error) {
			a.Replace = true
			return a, nil
		}); err != nil {
			return err
		}
		if err := wait(func(all map[string]cluster.Assignment) bool { return successor(all, name) }); err != nil {
			return fmt.Errorf("successor of %s: %w", name, err)
		}
		took = append(took, time.Since(begin))
		if err := wait(func(all map[string]cluster.Assignment) bool { return settled(all, f.spec.workers) }); err != nil {
			return fmt.Errorf("end of %s: %w", name, err)
		}
		whole = append(whole, time.Since(begin))
		return nil
	})
	if err != nil {
		return err
	}
	s[keyOrder], s[keyReplace] = ms(middle(took)), ms(middle(whole))
	return nil
}

// successor reports whether a worker has one.
func successor(all map[string]cluster.Assignment, name string) bool {
	for _, a := range all {
		if a.Replaces == name {
			return true
		}
	}
	return false
}

// settled reports whether nothing is left to do but to serve.
func settled(all map[string]cluster.Assignment, workers int) bool {
	for _, a := range all {
		if a.Replace || a.Replaces != "" || a.Desire != cluster.DesireRun {
			return false
		}
	}
	return len(all) == workers
}
