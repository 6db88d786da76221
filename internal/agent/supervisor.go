package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// supervisor makes the workers of this node follow their assignments. One goroutine, run,
// reads the assignments; each worker has its own runner.
type supervisor struct {
	a           *Agent
	assignments *store.Prefix[cluster.Assignment]
	follows     atomic.Int64 // steps of run

	mu       sync.Mutex
	runners  map[string]*runner
	leaving  map[string][]*runner // runners without an assignment that have not ended yet
	stopping bool
	wg       sync.WaitGroup // runners
}

func newSupervisor(ctx context.Context, a *Agent) (*supervisor, error) {
	prefix := cluster.AssignmentPrefix(a.cfg.Namespace)
	assignments, err := store.WatchPrefix(context.WithoutCancel(ctx), a.stores.store, prefix, store.DecodeJSON[cluster.Assignment], a.log)
	if err != nil {
		return nil, fmt.Errorf("watch assignments: %w", err)
	}
	s := &supervisor{a: a, assignments: assignments, runners: map[string]*runner{}, leaving: map[string][]*runner{}}
	a.drt.OnRelease(func(_, _ cluster.InstanceID) { s.writeAgain() })
	return s, nil
}

// writeAgain restores the statuses that were lost with the node's lease.
func (s *supervisor) writeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runners {
		r.writeAgain()
	}
}

func (s *supervisor) close() { s.assignments.Close() }

// run passes every change of an assignment to its runner until ctx ends.
func (s *supervisor) run(ctx context.Context) error {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		began := time.Now()
		s.follows.Add(1)
		if !s.follow(ctx) {
			again.Reset(forgottenRetry)
		}
		// Each step looks at all assignments of the cluster, so that one for each change would
		// cost workers times workers when a cluster starts.
		pause := time.NewTimer(min(max(followPauses*time.Since(began), followPause), followPauseMax))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.assignments.Changed():
		case <-again.C:
		}
	}
}

const (
	// followPauses is how many times as long as a step the pause after it is.
	followPauses = 4
	// followPause and followPauseMax limit a pause.
	followPause    = 5 * time.Millisecond
	followPauseMax = 50 * time.Millisecond
)

// follow makes the workers follow their assignments. If the store has lost these, the
// workers continue, and follow restores their assignments. done is false if it must be
// called again soon.
func (s *supervisor) follow(ctx context.Context) (done bool) {
	held := s.doubtful()
	if len(held) > 0 {
		forgotten, err := s.a.declared.forgotten(ctx)
		switch {
		case err != nil:
			s.a.log.Warn("workers keep running: cannot find out whether the store lost their assignments", "error", err)
		case !forgotten:
			held = nil
		default:
			s.restore(ctx, held)
		}
	}
	s.converge(ctx, held)
	return len(held) == 0
}

// doubtful returns the assignments of running workers that the store lacks or has
// changed.
func (s *supervisor) doubtful() map[string]cluster.Assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine, held := s.mineLocked(), map[string]cluster.Assignment{}
	for name, r := range s.runners {
		was := r.followed
		if now, ok := mine[name]; (!ok || now != was) && was.Desire != cluster.DesireRemove {
			held[name] = was
		}
	}
	return held
}

// restore writes assignments again that the store has lost. The node's record must come
// first: without it, a controller would give the workers to other nodes.
func (s *supervisor) restore(ctx context.Context, held map[string]cluster.Assignment) {
	st := s.a.stores.store
	if _, err := st.Get(ctx, cluster.NodeKey(s.a.nodeID)); err != nil {
		return // the runtime writes it when it has a lease again
	}
	for name, as := range held {
		key := cluster.AssignmentKey(s.a.cfg.Namespace, name)
		_, _, err := store.UpdateJSON(ctx, st, key, func(cluster.Assignment, bool) (cluster.Assignment, error) { return as, nil })
		if err != nil {
			s.a.log.Warn("assignment not written again yet", "worker", name, "error", err)
			continue
		}
		s.a.log.Warn("wrote an assignment again that the store had lost; the worker went on", "worker", name)
	}
}

// mineLocked returns the assignments of this node by worker.
func (s *supervisor) mineLocked() map[string]cluster.Assignment {
	mine := map[string]cluster.Assignment{}
	for _, as := range s.assignments.Snapshot() {
		if as.Node == s.a.nodeID {
			mine[as.Name] = as
		}
	}
	return mine
}

// converge makes the workers follow their assignments. Workers in held follow the
// assignment given there. Runners survive the end of ctx, until stop.
func (s *supervisor) converge(ctx context.Context, held map[string]cluster.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	mine := s.mineLocked()
	maps.Copy(mine, held)
	for name := range s.leaving {
		s.leftLocked(name)
	}
	for name, as := range mine {
		r := s.runners[name]
		if r == nil {
			r = newRunner(s.a, as, s.leftLocked(name))
			s.runners[name] = r
			s.wg.Go(r.begin(ctx))
		} else if as == r.followed {
			continue // it need not wake up
		}
		r.followed = as
		r.assign(as)
	}
	for name, r := range s.runners {
		if _, ok := mine[name]; !ok {
			r.remove()
			delete(s.runners, name)
			s.leaving[name] = append(s.leaving[name], r)
		}
	}
}

// leftLocked returns channels that are closed when the earlier, still running workers of
// that name have ended.
func (s *supervisor) leftLocked(name string) (earlier []<-chan struct{}) {
	var still []*runner
	for _, r := range s.leaving[name] {
		select {
		case <-r.done:
		default:
			still = append(still, r)
			earlier = append(earlier, r.done)
		}
	}
	s.leaving[name] = still
	if len(still) == 0 {
		delete(s.leaving, name)
	}
	return earlier
}

// drain makes all workers finish. It returns when they have, or when ctx ends.
func (s *supervisor) drain(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	runners := slices.Collect(maps.Values(s.runners))
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(runners))
	for i, r := range runners {
		wg.Go(func() { errs[i] = r.finish(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stop ends all workers without draining and waits for them.
func (s *supervisor) stop() {
	s.mu.Lock()
	s.stopping = true
	for _, r := range s.runners {
		r.cancel(errStopped)
	}
	for _, left := range s.leaving {
		for _, r := range left {
			r.cancel(errStopped)
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// statuses returns the current status of every worker of this node.
// endpoints says of each endpoint that workers of this node serve whether it works at all of
// them: ready or notready, by name.
func (s *supervisor) endpoints() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for _, r := range s.runners {
		for name, h := range r.endpoints() {
			if !h.Ready {
				out[name] = healthNotReady
			} else if out[name] == "" {
				out[name] = healthReady
			}
		}
	}
	return out
}

func (s *supervisor) statuses() []cluster.WorkerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []cluster.WorkerStatus
	for _, r := range s.runners {
		out = append(out, r.status())
	}
	slices.SortFunc(out, func(a, b cluster.WorkerStatus) int { return cluster.CompareNames(a.Name, b.Name) })
	return out
}
