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
	wall   time.Duration // of the steps, with gaps between them and waits for a shared device

	transfers uint64        // of KV
	moving    time.Duration // of these, together
}

// window returns what the worker did since the last call. ok is false if its counters do not say: it is
// another run, or has a counter that went back.
func (w *workerNews) window() (done work, ok bool) {
	a, b := w.base.Stats, w.last.Stats
	same := w.base.InstanceID == w.last.InstanceID
	w.base = w.last
	for _, c := range [][2]uint64{
		{a.StepsTotal, b.StepsTotal}, {a.StepNanosTotal, b.StepNanosTotal}, {a.StepWaitNanosTotal, b.StepWaitNanosTotal}, {a.StepGapNanosTotal, b.StepGapNanosTotal}, {a.StepDecodesTotal, b.StepDecodesTotal},
		{a.StepDecodeContextTotal, b.StepDecodeContextTotal}, {a.StepTokensTotal, b.StepTokensTotal}, {a.StepChunkContextTotal, b.StepChunkContextTotal},
		{a.TransfersTotal, b.TransfersTotal}, {a.TransferNanosTotal, b.TransferNanosTotal},
	} {
		same = same && c[0] <= c[1] && c[1]-c[0] < 1<<62
	}
	if !same {
		return work{}, false
	}
	busy := time.Duration(b.StepNanosTotal - a.StepNanosTotal + b.StepGapNanosTotal - a.StepGapNanosTotal)
	return work{
		sample: profile.Sample{
			Work: profile.Work{
				Decodes: int(b.StepDecodesTotal - a.StepDecodesTotal), DecodeContext: int(b.StepDecodeContextTotal - a.StepDecodeContextTotal),
				Tokens: int(b.StepTokensTotal - a.StepTokensTotal), ChunkContext: int(b.StepChunkContextTotal - a.StepChunkContextTotal),
			},
			Seconds: busy.Seconds(), Steps: int(b.StepsTotal - a.StepsTotal),
		},
		wall:      busy + time.Duration(b.StepWaitNanosTotal-a.StepWaitNanosTotal),
		transfers: b.TransfersTotal - a.TransfersTotal, moving: time.Duration(b.TransferNanosTotal - a.TransferNanosTotal),
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
	var samples []profile.Sample
	var transfers uint64
	var moving time.Duration
	coming := 0 // sequences whose prompts are computed elsewhere
	for _, name := range sortedNames(v.Assignments) {
		a := v.Assignments[name]
		if !a.Role.HoldsKV() {
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
		w := planner.Worker{Name: name, State: planner.WorkerStarting, Attached: v.attached(a)}
		if news == nil || !stored {
			if w.Attached { // nobody starts it
				w.State = planner.WorkerLost
			}
			add(o, a.Role, w)
			continue
		}
		st = news.last
		s := st.Stats
		w.State = stateOf(a, st)
		if w.State == planner.WorkerReady && now.Sub(news.heard) > cluster.SilentAfter || w.State == planner.WorkerStarting && w.Attached {
			w.State = planner.WorkerLost
		}
		coming += max(s.RemoteWait, 0)
		w.KVTokens = s.KVActive * s.BlockSize
		w.QueuedTokens = s.PrefillTokens
		if st.Role == cluster.RolePrefill {
			w.QueuedTokens += waits(s.Waiting)
		}
		done, ok := news.window()
		transfers, moving = transfers+done.transfers, moving+done.moving
		if ok && done.sample.Steps > 0 {
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
	o.Prefill.Queued = g.queued
	if v.Shared { // the queue does not say whose prompts wait in it: no more than the pool waits for
		o.Prefill.Queued = min(g.queued, coming)
	}
	o.Prefill.QueuedTokens = waits(o.Prefill.Queued)
	if g.speed != nil && o.Stale == "" {
		g.speed.learn(samples)
		g.speed.moved(float64(transfers), moving)
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
	case a.Desire != cluster.DesireRun, st.State == cluster.StateDraining, st.State == cluster.StateDrained, st.State == cluster.StateStopped, st.State == cluster.StateSleeping:
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

// pendingKey names an action under way. The worker is empty for one that the controller has not begun.
type pendingKey struct {
	worker string
	kind   planner.ActionKind
	role   cluster.Role // where there is no worker
}

type pendingAction struct {
	role  cluster.Role
	since time.Time
}

// maxFinished bounds the actions that end between two observations.
const maxFinished = 1024

// actions follows assignments that workers have not followed yet, and the topology where assignments have not.
func (g *Gatherer) actions(now time.Time, v View) {
	if v.Stale != "" {
		return
	}
	g.order = nil
	there := map[pendingKey]bool{}
	pend := func(key pendingKey, role cluster.Role) {
		if _, known := g.pending[key]; !known {
			if len(g.pending) == maxSources {
				return
			}
			a := pendingAction{role, now}
			if g.nodes == nil { // the first view: it may have begun long before
				a.since = g.began
			}
			g.pending[key] = a
		}
		there[key] = true
		g.order = append(g.order, key)
	}
	for _, name := range sortedNames(v.Assignments) {
		a, st := v.Assignments[name], v.Status[name]
		if v.attached(a) || st.State == cluster.StateSleeping || a.Desire == cluster.DesireDrain && st.State == cluster.StateDrained {
			continue
		}
		switch {
		case a.Desire != cluster.DesireRun:
			pend(pendingKey{worker: name, kind: planner.ActionDrain}, a.Role)
		case st.State.Serving() && st.Role != a.Role:
			pend(pendingKey{worker: name, kind: planner.ActionFlip}, a.Role)
		case !st.State.Serving():
			pend(pendingKey{worker: name, kind: planner.ActionStart}, a.Role)
		}
	}
	for _, role := range planner.Roles {
		if v.Declared == nil {
			continue
		}
		switch n := staying(v, role) - v.Declared.Count(role); {
		case n < 0:
			pend(pendingKey{kind: planner.ActionStart, role: role}, role)
		case n > 0:
			pend(pendingKey{kind: planner.ActionDrain, role: role}, role)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(g.pending), func(a, b pendingKey) int { return cluster.CompareNames(a.worker, b.worker) }) {
		if there[key] {
			continue
		}
		began := g.pending[key]
		if key.worker != "" && began.since.After(g.began) && ended(key, v) && len(g.finished) < maxFinished {
			g.finished = append(g.finished, planner.Duration{Kind: key.kind, Took: now.Sub(began.since), Role: began.role})
		}
		delete(g.pending, key)
	}
}

// ended reports whether an action that is no longer under way has had its effect: what is taken back
// has not.
func ended(key pendingKey, v View) bool {
	a, assigned := v.Assignments[key.worker]
	if key.kind == planner.ActionDrain {
		return !assigned
	}
	return assigned && a.Desire == cluster.DesireRun && v.Status[key.worker].State.Serving()
}

func sortedNames[T any](byName map[string]T) []string {
	return slices.SortedFunc(maps.Keys(byName), cluster.CompareNames)
}
