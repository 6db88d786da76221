package frontend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/fairqueue"
	"github.com/dynctl/dynctl/internal/metrics"
)

const (
	// aheadOfWorkers limits the sequences sent to workers, as a multiple of what they run
	// at once. The surplus waits at the workers and fills a free slot without a round
	// trip. All other sequences wait in the frontend. There they overflow no worker's
	// queue, and they are routed by the load at the time.
	aheadOfWorkers = 2
	// unknownSeqs is assumed for a worker that does not report how many sequences it
	// runs.
	unknownSeqs = 64
	// maxQueuedSeqs and maxQueuedTokens bound the queue of one model: sequences, and
	// tokens of their prompts. A client may queue as much as is still free.
	maxQueuedSeqs   = 16 << 10
	maxQueuedTokens = 64 << 20
	// retryQueue is the Retry-After for a client that has too much queued.
	retryQueue = 5 * time.Second
)

// admission lets sequences go to workers; tenants take turns.
type admission struct {
	limits fairqueue.Limits
	begin  time.Time // from which the due of requests counts

	mu    sync.Mutex
	gates map[string]*fairqueue.Gate // by model; its adapters share one with it
}

func newAdmission() *admission {
	return &admission{begin: time.Now(), limits: fairqueue.Limits{Waiting: maxQueuedSeqs, Cost: maxQueuedTokens}, gates: map[string]*fairqueue.Gate{}}
}

// reserve takes a place for each of n sequences of a model; see queueing.due.
func (a *admission) reserve(m *servedModel, tenant string, n int, tokens int64, due float64) ([]*fairqueue.Pass, error) {
	seqs := m.limits.MaxSeqs
	if seqs <= 0 {
		seqs = unknownSeqs
	}
	capacity, name := aheadOfWorkers*seqs*max(m.seats, 1), m.declared()
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.gates[name]
	if g == nil {
		for gone, other := range a.gates { // of models that are gone
			if used, waiting := other.Counts(); used+waiting == 0 {
				delete(a.gates, gone)
			}
		}
		g = fairqueue.NewGate(capacity, a.limits)
		a.gates[name] = g
	}
	g.SetCapacity(capacity)
	return g.Reserve(tenant, n, tokens, due)
}

// admit reserves places for all choices of a job, or returns an error if there is no
// room.
func (j *job) admit(m *servedModel) error {
	if len(j.choices) == 0 {
		return nil
	}
	passes, err := j.f.admission.reserve(m, j.tenant, len(j.choices), int64(sum(j.prompts))/int64(len(j.choices)), j.due())
	if errors.Is(err, fairqueue.ErrFull) {
		j.f.log.Debug("request refused", "request", j.id, "tenant", j.tenant, "error", err)
		e := overloaded(metrics.RefusedQueueFull, "Too many of your requests are waiting, please retry later.")
		e.retryAfter = retryQueue
		return e
	}
	if err != nil {
		return err
	}
	for i, c := range j.choices {
		c.pass = passes[i]
	}
	return nil
}

// enter waits until the choice may go to a worker, but not beyond the request's deadline.
func (j *job) enter(ctx context.Context, c *choice) error {
	leave := j.f.metrics.EnterStage(metrics.StageQueue)
	begin := time.Now()
	if d := j.queueing.deadline; d > 0 {
		limited, cancel := context.WithDeadlineCause(ctx, j.arrived.Add(d), errDeadline)
		defer cancel()
		ctx = limited
	}
	err := c.pass.Wait(ctx)
	leave(time.Since(begin))
	if err == nil && ctx.Err() != nil { // both came at once
		err = context.Cause(ctx)
	}
	return err
}
