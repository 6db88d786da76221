package worker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Reasons of a worker that does not serve because of what somebody else did to its server.
const (
	foundAsleep = "somebody else has put its server to sleep"
	foundAwake  = "somebody else has woken its server"
)

// restPoll is the interval at which a worker looks whether its server is idle, so that it can
// sleep.
const restPoll = 250 * time.Millisecond

// rest keeps the worker out of service between two terms while its server sleeps, or is to. The
// worker has a lease and a status, and no endpoints: nobody sends it requests. It returns when
// the worker is to serve, or with the reason of the worker's end.
func (w *Worker) rest(ctx context.Context, c core) error {
	s := c.sleeper()
	poll := time.NewTicker(restPoll)
	defer poll.Stop()
	for slept := false; ; {
		asleep, err := s.Asleep(ctx)
		if err != nil {
			return fmt.Errorf("ask whether the server sleeps: %w", err)
		}
		as, wait := w.Assignment(), poll.C
		switch level := as.SleepLevel(); {
		case level == 0 && asleep && as.Asleep > 0:
			if err := w.wake(ctx, s, as); err != nil {
				return err
			}
			continue
		case level == 0 && asleep:
			w.atRest(0, foundAsleep)
			wait = nil
		case level == 0:
			as.Asleep = 0
			w.adopt(as)
			return nil
		case asleep:
			// Of one that was asleep before the order nobody knows the level.
			as.Asleep = cmp.Or(as.Asleep, cluster.SleepDeep)
			w.adopt(as)
			w.atRest(as.Asleep, fmt.Sprintf("level %d", as.Asleep))
			slept, wait = true, nil
		case slept:
			w.atRest(0, foundAwake)
			wait = nil
		default:
			if err := s.CanSleep(ctx, level); err != nil {
				return err
			}
			if _, busy := c.moving(ctx); busy > 0 {
				w.setState(cluster.StateDraining, "its server runs requests of others, and then sleeps")
				break
			}
			if err := s.Sleep(ctx, level); err != nil {
				return err
			}
			as.Asleep = level
			w.adopt(as)
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Turned():
		case <-wait:
		case o := <-w.orders:
			if o.assignment == nil {
				return ErrDrained
			}
			next := *o.assignment
			next.Asleep = cmp.Or(next.Asleep, w.Assignment().Asleep) // the store may not have it yet
			if next.Role == w.Role() {
				w.adopt(next)
			} else if err := w.nextTerm(ctx, c, w.term.Load(), next); err != nil {
				return err
			}
		}
	}
}

// atRest tells that the worker rests, and why.
func (w *Worker) atRest(level int, why string) {
	if st := w.board.get(); st.State == cluster.StateSleeping && st.Sleep == level && st.Reason == why {
		return
	}
	w.setState(cluster.StateSleeping, why)
	w.board.update(func(st *cluster.WorkerStatus) {
		st.Sleep = level
		switch {
		case level == 0:
			st.Drain = nil
		case st.Drain == nil:
			st.Drain = drained(nil, w.Assignment())
		}
	})
}

// wake wakes the server, so that the worker can serve.
func (w *Worker) wake(ctx context.Context, s sleeper, as cluster.Assignment) error {
	w.setState(cluster.StateWarming, "its server wakes")
	if err := s.Wake(ctx, as.Asleep); err != nil {
		return err
	}
	as.Asleep = 0
	w.adopt(as)
	w.board.update(func(st *cluster.WorkerStatus) { st.Sleep, st.Drain = 0, nil })
	return nil
}
