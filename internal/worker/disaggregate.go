package worker

import (
	"context"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// disaggregation is how one request of a decode worker comes by the KV of its
// prompt. The request says which strategy its frontend decided by, so that workers
// serve both at once.
type disaggregation struct {
	w      *Worker
	tenant string
	hints  protocol.DisaggHints
	// way is written by the goroutine of the reservation before it ends that, and read
	// after the first output, which comes later.
	way protocol.PrefillWay
}

// decide answers the engine's question at admission: prefill here or elsewhere? It
// may not block, so what it knows of others is what was last heard.
func (d *disaggregation) decide(prompt, cached int) engine.Decision {
	remote, why := d.choose(prompt, cached)
	if !remote {
		d.w.meter().Prefill(metrics.PrefillLocal, "", why)
	}
	return engine.Decision{Remote: remote, Why: why}
}

func (d *disaggregation) choose(prompt, cached int) (remote bool, why string) {
	s := router.PrefillState{PromptTokens: prompt, CachedTokens: cached, Force: d.hints.Force}
	limits := d.w.cfg.Settings().Prefill
	if d.hints.Strategy != protocol.StrategyRouter {
		s.QueueDepth = d.w.cfg.QueueDepth()
		if d.w.prefills != nil {
			s.PrefillWorkers = len(d.w.prefills.Instances())
		}
		remote, why := router.DecidePrefill(s, limits)
		if remote && s.Force == "" && s.QueueDepth >= crowded*s.PrefillWorkers && d.w.asked.mostlyOthers(d.tenant) {
			return false, whyOthersWait
		}
		return remote, why
	}
	if d.hints.Params == nil && d.hints.Bootstrap == nil {
		return false, d.hints.Why
	}
	// The frontend has found a worker that has room; it does not know this cache.
	s.PrefillWorkers, limits.MaxQueueDepth = 1, 1
	return router.DecidePrefill(s, limits)
}

// The prefill queue is first come, first served. A tenant that has little in it does not
// queue up behind the many prompts of another one: where so many for each prefill worker
// wait, its prompts are computed by the decode worker, whose steps are shared.
const (
	crowded       = 4
	whyOthersWait = "others wait"
)

// outstanding counts the prompts that a decode worker has on the prefill queue.
type outstanding struct {
	mu  sync.Mutex
	all int
	by  map[string]int // by tenant; those with none are absent
}

func (o *outstanding) add(tenant string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[string]int{}
	}
	o.all += n
	if o.by[tenant] += n; o.by[tenant] == 0 {
		delete(o.by, tenant)
	}
}

// mostlyOthers reports whether other tenants have more than twice as many as this one
// would have with one more.
func (o *outstanding) mostlyOthers(tenant string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	mine := o.by[tenant]
	return o.all-mine > 2*(mine+1)
}

// fill has the KV of a reservation brought here; it runs in the reservation's own
// goroutine. Whatever goes wrong, the prompt is prefilled here in the end, after it
// is certain that nobody writes into its blocks any more.
func (d *disaggregation) fill(r *engine.Reservation) {
	f := &filling{w: d.w, r: r, tenant: d.tenant, begin: time.Now(), move: d.w.kv.Begin(cluster.Transfer{
		RequestID: r.RequestID, Direction: cluster.TransferIn, Blocks: len(r.Blocks) - r.CachedBlocks,
	})}
	defer f.move.End()
	ctx, cancel := context.WithTimeoutCause(r.Context(), d.w.cfg.Settings().RemoteTimeout, errRemoteTimeout)
	defer cancel()
	switch {
	case d.hints.Params != nil:
		f.pull(ctx, d.hints.Params)
	case d.hints.Bootstrap != nil:
		f.tried = d.hints.Bootstrap.ID
		f.push(ctx, protocol.WayBackground, f.joinRoom(d.hints.Bootstrap))
	default:
		d.w.asked.add(d.tenant, 1)
		f.push(ctx, protocol.WayQueue, f.requestPrefill)
		d.w.asked.add(d.tenant, -1)
	}
	if f.again(ctx) {
		f.err = nil
		f.push(ctx, protocol.WayDirect, f.callPrefill)
	}
	d.way = f.way
	f.end(ctx)
	if f.after != nil {
		f.after()
	}
}

// filling is a reservation while somebody fills it. It belongs to the goroutine of
// the reservation.
type filling struct {
	w      *Worker
	r      *engine.Reservation
	tenant string // of the request
	begin  time.Time
	move   *kv.Movement

	// How it stands after an attempt.
	way    protocol.PrefillWay
	notice protocol.PrefillNotice // of who filled it
	err    error
	over   bool // the blocks are in quarantine: the reservation has ended
	// tried is the prefill worker that the frontend chose, once it has failed.
	tried cluster.InstanceID
	after func() // what is left to do when the sequence goes on; may be nil
}

// again reports whether another prefill worker gets a try: once, after the failure of
// the one that the frontend chose.
func (f *filling) again(ctx context.Context) bool {
	if f.err == nil || f.over || ctx.Err() != nil || f.tried == 0 {
		return false
	}
	for _, i := range f.w.prefills.Instances() {
		if i.InstanceID != f.tried {
			f.w.log.Info("remote prefill failed, asking another worker", "request", f.r.RequestID, "way", string(f.way), "error", f.err)
			return true
		}
	}
	return false
}

// end ends the reservation. Nobody touches its blocks any more.
func (f *filling) end(ctx context.Context) {
	if f.over {
		return
	}
	if f.err != nil && ctx.Err() != nil {
		f.err = context.Cause(ctx)
	}
	w, way := f.w, string(f.way)
	switch {
	case f.err == nil:
		w.kv.Moved(f.notice.Bytes, time.Duration(f.notice.WriteNS))
		w.meter().Transferred(metrics.DirectionIn, w.kv.TransportOf(f.notice.Worker), f.notice.Bytes, time.Duration(f.notice.WriteNS))
		w.meter().TransferExposed(way, time.Duration(f.notice.ExposedNS))
		w.meter().RemotePrefill(way, time.Since(f.begin))
		w.meter().Prefill(metrics.PrefillRemote, way, "")
		f.r.Start(f.notice.Worker)
		pointStarted.Hit()
	case f.r.Context().Err() != nil:
		f.r.Release(context.Cause(f.r.Context()))
	default:
		w.log.Warn("remote prefill failed, prefilling here", "request", f.r.RequestID, "way", way, "error", f.err)
		w.meter().Prefill(metrics.PrefillFallback, way, fallbackReason(f.err))
		f.r.Fallback(fallbackReason(f.err))
	}
}
