package live

import (
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
)

// workerNews is what was heard of a worker.
type workerNews struct {
	heard time.Time
	last  cluster.WorkerStatus
	base  cluster.WorkerStatus // at the end of the window before
}

// hear takes in a status, unless it is older than the last one.
func (w *workerNews) hear(now time.Time, st cluster.WorkerStatus) {
	if st.UpdatedAt.Before(w.last.UpdatedAt) {
		return
	}
	if w.last.UpdatedAt.IsZero() { // what it did before is not of this window
		w.base = st
	}
	w.last, w.heard = st, now
}

// work is what a worker did in a window.
type work struct {
	sample profile.Sample
	wall   time.Duration // of the steps, with waits for a shared device
}

// window returns what the worker did since the last call. ok is false if its counters do not say: it is
// another run, or has a counter that went back.
func (w *workerNews) window() (done work, ok bool) {
	a, b := w.base.Stats, w.last.Stats
	same := w.base.InstanceID == w.last.InstanceID
	w.base = w.last
	for _, c := range [][2]uint64{
		{a.StepsTotal, b.StepsTotal}, {a.StepNanosTotal, b.StepNanosTotal}, {a.StepWaitNanosTotal, b.StepWaitNanosTotal}, {a.StepDecodesTotal, b.StepDecodesTotal},
		{a.StepDecodeContextTotal, b.StepDecodeContextTotal}, {a.StepTokensTotal, b.StepTokensTotal}, {a.StepChunkContextTotal, b.StepChunkContextTotal},
	} {
		same = same && c[0] <= c[1] && c[1]-c[0] < 1<<62
	}
	if !same {
		return work{}, false
	}
	busy := time.Duration(b.StepNanosTotal - a.StepNanosTotal)
	return work{
		sample: profile.Sample{
			Work: profile.Work{
				Decodes: int(b.StepDecodesTotal - a.StepDecodesTotal), DecodeContext: int(b.StepDecodeContextTotal - a.StepDecodeContextTotal),
				Tokens: int(b.StepTokensTotal - a.StepTokensTotal), ChunkContext: int(b.StepChunkContextTotal - a.StepChunkContextTotal),
			},
			Seconds: busy.Seconds(), Steps: int(b.StepsTotal - a.StepsTotal),
		},
		wall: busy + time.Duration(b.StepWaitNanosTotal-a.StepWaitNanosTotal),
	}, true
}

// roles describes the workers that are assigned.
func (g *Gatherer) roles(now time.Time, v View, o *planner.Observation) {
	maps.DeleteFunc(g.workers, func(name string, _ *workerNews) bool {
		_, assigned := v.Assignments[name]
		return !assigned
	})
	mean := meanPrompt(o.Requests)
	waits := func(n int) int { return int(float64(n) * mean) }
	o.Prefill.Queued, o.Prefill.QueuedTokens = g.queued, waits(g.queued)
	var samples []profile.Sample
	for _, name := range slices.SortedFunc(maps.Keys(v.Assignments), cluster.CompareNames) {
		a := v.Assignments[name]
		if !a.Role.HoldsKV() || a.Node == "" {
			continue
		}
		st, stored := v.Status[name]
		news := g.workers[name]
		switch {
		case news == nil && stored && len(g.workers) < maxSources:
			news = &workerNews{}
			g.workers[name] = news
			news.hear(now, st)
		case news != nil && stored && st.UpdatedAt.After(news.last.UpdatedAt):
			if news.last.InstanceID != st.InstanceID { // a new run has time to speak
				news.heard = now
			}
			news.last = st // of the same run it is no sign of life on the event plane
		}
		w := planner.Worker{Name: name, State: planner.WorkerStarting}
		if news == nil || !stored {
			add(o, a.Role, w)
			continue
		}
		st = news.last
		s := st.Stats
		w.State = stateOf(a, st)
		if w.State == planner.WorkerReady && now.Sub(news.heard) > cluster.SilentAfter {
			w.State = planner.WorkerLost
		}
		w.KVTokens = s.KVActive * s.BlockSize
		w.QueuedTokens = s.PrefillTokens
		if st.Role == cluster.RolePrefill {
			w.QueuedTokens += waits(s.Waiting)
		}
		if done, ok := news.window(); ok && done.sample.Steps > 0 {
			w.PromptTokens = done.sample.Work.Tokens
			if done.sample.Work.Decodes > 0 {
				w.Step = done.wall / time.Duration(done.sample.Steps)
			} else {
				w.PromptBusy = done.wall
			}
			if done.sample.Seconds > 0 {
				samples = append(samples, done.sample)
			}
		}
		if g.speed != nil && w.State == planner.WorkerReady {
			g.speed.limits(s)
		}
		add(o, st.Role, w)
	}
	if g.speed != nil && o.Stale == "" {
		g.speed.learn(samples)
	}
}

func add(o *planner.Observation, role cluster.Role, w planner.Worker) {
	if role == cluster.RolePrefill {
		o.Prefill.Workers = append(o.Prefill.Workers, w)
	} else {
		o.Decode.Workers = append(o.Decode.Workers, w)
	}
}

func stateOf(a cluster.Assignment, st cluster.WorkerStatus) planner.WorkerState {
	switch {
	case a.Desire != cluster.DesireRun, st.State == cluster.StateDraining, st.State == cluster.StateDrained, st.State == cluster.StateStopped:
		return planner.WorkerDraining
	case st.State.Serving():
		return planner.WorkerReady
	case st.State == cluster.StateFailed, st.State == cluster.StateLost:
		return planner.WorkerLost
	}
	return planner.WorkerStarting
}

// meanPrompt returns the mean of the prompt tokens that had to be computed: what a request that waits is
// taken for, since queues tell no lengths.
func meanPrompt(requests []planner.Request) float64 {
	sum := 0.0
	for _, r := range requests {
		sum += float64(max(r.ISL-r.Cached, 0))
	}
	return sum / float64(max(len(requests), 1))
}

// pendingKey names an action under way.
type pendingKey struct {
	worker string
	kind   planner.ActionKind
}

// actions lists assignments that workers have not followed yet, and those that have ended since.
func (g *Gatherer) actions(now time.Time, v View, o *planner.Observation) {
	if v.Stale != "" {
		return
	}
	there := map[pendingKey]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(v.Assignments), cluster.CompareNames) {
		a, st := v.Assignments[name], v.Status[name]
		if !a.Role.HoldsKV() || a.Node == "" || a.Desire == cluster.DesireDrain && st.State == cluster.StateDrained {
			continue
		}
		kind, role := planner.ActionKind(""), a.Role
		switch {
		case a.Desire != cluster.DesireRun:
			kind = planner.ActionDrain
		case st.State.Serving() && st.Role != a.Role:
			kind = planner.ActionFlip
		case !st.State.Serving():
			kind = planner.ActionStart
		}
		if kind == "" {
			continue
		}
		key := pendingKey{name, kind}
		if _, known := g.pending[key]; !known && len(g.pending) < maxSources {
			g.pending[key] = now
			if g.nodes == nil { // the first view: it may have begun long before
				g.pending[key] = g.began
			}
		}
		there[key] = true
		o.Pending = append(o.Pending, planner.Pending{Kind: kind, Role: role, Since: g.pending[key]})
	}
	for _, key := range slices.SortedFunc(maps.Keys(g.pending), func(a, b pendingKey) int { return cluster.CompareNames(a.worker, b.worker) }) {
		if there[key] {
			continue
		}
		_, assigned := v.Assignments[key.worker]
		if began := g.pending[key]; began.After(g.began) && assigned == (key.kind != planner.ActionDrain) {
			o.Finished = append(o.Finished, planner.Duration{Kind: key.kind, Took: now.Sub(began)})
		}
		delete(g.pending, key)
	}
}
