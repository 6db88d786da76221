package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/store"
)

// board holds the status of a worker and has changes published.
type board struct {
	mu         sync.Mutex
	st         cluster.WorkerStatus
	changed    bool           // since publishing has last looked
	publishing *ondemand.Task // nil before the worker runs

	// Owned by publishing.
	write   bool      // the status key differs
	written time.Time // when the status key was

	// writing is held while the status key is written, so that none is written under the
	// lease of a role that the worker has left.
	writing sync.Mutex
}

func newBoard(st cluster.WorkerStatus) *board {
	return &board{st: st}
}

func (b *board) update(f func(*cluster.WorkerStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.st)
	b.changed = true
	if b.publishing != nil {
		b.publishing.Wake()
	}
}

// publish has the status published from now on.
func (b *board) publish(task *ondemand.Task) {
	b.mu.Lock()
	b.publishing = task
	b.mu.Unlock()
	b.update(func(*cluster.WorkerStatus) {})
}

// news reports whether the status has changed since the last call.
func (b *board) news() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed := b.changed
	b.changed = false
	return changed
}

func (b *board) get() cluster.WorkerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.st
	if st.Drain != nil {
		d := *st.Drain
		st.Drain = &d
	}
	return st
}

// Status returns the present status with fresh load figures.
func (w *Worker) Status() cluster.WorkerStatus {
	st := w.board.get()
	st.UpdatedAt = time.Now()
	st.Unhealthy = w.unhealthy()
	if t := w.term.Load(); t != nil {
		st.InstanceID = t.drt.ID()
		st.LeaseTTLMS = t.drt.Lease().TTL.Milliseconds()
	}
	if c := w.core.Load(); c != nil {
		st.Stats, st.ServerStatus = c.figures(w.Role()), c.server()
		if !w.Role().HoldsKV() {
			st.MemoryBytes, st.BlockBytes = 0, 0
		}
		st.KVEpoch, st.KVNext = w.events.epoch, w.events.position()
	}
	return st
}

func (w *Worker) setState(s cluster.State, reason string) {
	w.board.update(func(st *cluster.WorkerStatus) {
		if st.State != s || st.Reason != reason {
			w.log.Info("state", "state", string(s), "reason", reason)
		}
		st.State, st.Reason = s, reason
	})
}

// publishStatus writes the status key when it has changed and now and then, and sends the
// load figures as an event. It runs after changes and once in StatusInterval.
func (w *Worker) publishStatus(ctx context.Context) {
	w.judge()
	b := w.board
	b.write = b.news() || b.write
	st := w.Status()
	w.meters.measure(st.Stats, w.cfg.QueueDepth(), w.agent())
	if b.write || time.Since(b.written) >= cluster.HeartbeatInterval {
		if err := w.writeStatus(ctx); err != nil && ctx.Err() == nil {
			w.log.Debug("status not written", "error", err)
		} else {
			b.written, b.write = time.Now(), false
		}
	}
	// Events may be lost by design; the bus counts them.
	_ = w.cfg.Bus.Publish(ctx, w.subject(cluster.TopicWorkerStatus), st)
	b.publishing.WakeIn(untilBeat(time.Now()))
}

// beat shifts the instants at which the workers of this process publish their statuses: all
// together, so that they cost few wake-ups and writes, and apart from other processes.
var beat = rand.N(cluster.StatusInterval)

// untilBeat returns the time until the next such instant, at most StatusInterval.
func untilBeat(now time.Time) time.Duration {
	return cluster.StatusInterval - time.Duration(now.UnixNano()+int64(beat))%cluster.StatusInterval
}

// agent is the NIXL agent, nil before there is one.
func (w *Worker) agent() *nixl.Agent {
	if c := w.core.Load(); c != nil {
		return c.agent()
	}
	return nil
}

// Shares of KV blocks in use at which a worker is degraded, and at which it is well
// again.
const (
	kvHigh = 0.95
	kvFine = 0.90
)

// Reasons of a degraded worker.
const (
	whyKVHigh    = "kv-high"
	whyUnhealthy = "unhealthy: " // and what the canary says
)

// judge says whether a serving worker is degraded, and why.
func (w *Worker) judge() {
	st := w.Status()
	if !st.State.Serving() || st.Stats.KVTotal == 0 {
		return
	}
	state, reason := cluster.StateReady, ""
	used := float64(st.Stats.KVUsed()) / float64(st.Stats.KVTotal)
	switch {
	case st.Unhealthy != "":
		state, reason = cluster.StateDegraded, whyUnhealthy+st.Unhealthy
	case used > kvHigh, st.Reason == whyKVHigh && used >= kvFine:
		state, reason = cluster.StateDegraded, whyKVHigh
	}
	if state != st.State || reason != st.Reason && state == cluster.StateDegraded {
		w.setState(state, reason)
	}
}

func (w *Worker) writeStatus(ctx context.Context) error {
	w.board.writing.Lock()
	defer w.board.writing.Unlock()
	return w.writeStatusLocked(ctx)
}

func (w *Worker) writeStatusLocked(ctx context.Context) error {
	st := w.Status()
	key := cluster.StatusKey(w.cfg.Namespace, st.Name)
	_, err := store.PutJSON(ctx, w.cfg.Store, key, st, store.WithLease(st.InstanceID))
	return err
}
