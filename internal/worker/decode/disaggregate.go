package decode

import (
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// disaggregation gets the KV of a prompt for one request of a decode worker. The request
// names the strategy that its frontend decided by, so that workers serve both at once.
type disaggregation struct {
	w      *Role
	tenant string
	hints  protocol.DisaggHints
	media  []protocol.MediaPart
	images *media.Images // those of media
	// way is written by the goroutine of the reservation before it ends that, and read
	// after the first output, which comes later.
	way    protocol.PrefillWay
	notice protocol.PrefillNotice // of the prefill worker, or about a hand-over; like way
	// refused is why no prefill worker can compute a prompt that the request does not want
	// to be computed here; set by decide, before fill.
	refused string
}

// decide answers the engine's question at admission: prefill here or elsewhere? It
// may not block, so what it knows of others is what was last heard.
func (d *disaggregation) decide(prompt, cached int) engine.Decision {
	remote, why := d.choose(prompt, cached)
	if !remote && d.hints.Enforce && router.StandsIn(why) {
		d.refused, remote = why, true // fill fails it
	}
	if !remote {
		d.w.Meter.Prefill(metrics.PrefillLocal, "", why)
	}
	return engine.Decision{Remote: remote, Why: why}
}

func (d *disaggregation) choose(prompt, cached int) (remote bool, why string) {
	if n := len(d.media); n > 0 && d.media[n-1].End >= prompt {
		return false, whyEndsWithImage
	}
	stats := d.w.Engine.Stats()
	s := router.PrefillState{PromptTokens: prompt, CachedTokens: cached, Force: d.hints.Force}
	s.Decode = here(stats, prompt-cached)
	limits := d.w.Settings().Prefill
	limits.Enforce = d.hints.Enforce
	if d.hints.Strategy != protocol.StrategyPrefillFirst {
		s.QueueDepth = d.w.QueueDepth()
		s.PrefillWorkers = len(d.w.prefills.Instances())
		s.Prefill = d.queued(prompt, s.QueueDepth, max(1, s.PrefillWorkers))
		s.TransferRate, s.TransferOverlaps = d.hints.Prefills.TransferRate, true
		remote, why := router.DecidePrefill(s, limits)
		if remote && s.Force == "" && !limits.Enforce && s.QueueDepth >= crowded*s.PrefillWorkers && d.w.asked.mostlyOthers(d.tenant) {
			return false, whyOthersWait
		}
		return remote, why
	}
	if d.hints.Params == nil && d.hints.Bootstrap == nil {
		return false, d.hints.Why
	}
	// The frontend has found a worker that has room; it does not know this cache.
	s.PrefillWorkers, limits.MaxQueueDepth = 1, 1
	if limits.Conditional.ComparesSpeeds() {
		// It has compared speeds that are not known here. All that can have changed the
		// comparison is what is cached here: what lacks no whole block is not fetched.
		limits.MaxLocalTokens = min(limits.MaxLocalTokens, stats.BlockSize)
	}
	return router.DecidePrefill(s, limits)
}

// here describes a decode worker as the place for a prompt with so many uncached tokens.
func here(stats cluster.WorkerStats, uncached int) router.PrefillPlace {
	p := router.PrefillPlace{
		Uncached: uncached, Waiting: stats.PrefillTokens, Prompts: float64(stats.Prefilling), Rate: stats.PrefillRate, KVTokens: stats.KVTotal * stats.BlockSize,
	}
	if stats.KVTotal > 0 {
		share := float64(stats.KVUsed()) / float64(stats.KVTotal)
		p.KVShare = &share
	}
	return p
}

// queued describes the prefill worker that will take a prompt from the queue: one like the
// mean of them. The queue tells how many prompts wait, not how long they are: they count as
// long as this one.
func (d *disaggregation) queued(prompt, depth, workers int) router.PrefillPlace {
	h := &d.hints.Prefills
	uncached := max(1, prompt-h.Cached)
	each := float64(depth) / float64(workers)
	return router.PrefillPlace{Uncached: uncached, Waiting: h.Waiting + int(each*float64(uncached)), Prompts: h.Prompts + each, Rate: h.Rate}
}

// The prefill queue is first come, first served. A tenant that has little in it does not
// queue up behind the many prompts of another one: where so many for each prefill worker
// wait, its prompts are computed by the decode worker, whose steps are shared.
const (
	crowded       = 4
	whyOthersWait = "others wait"
	// The last position of a prompt is computed by the decode worker, and an image is
	// computed in one place.
	whyEndsWithImage = "ends with an image"
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
