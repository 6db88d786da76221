package client

import (
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

const (
	keepEvents    = 200 // number of KV events and router decisions to keep
	latencyWindow = 60 * time.Second
	hitWindow     = 5 * time.Minute
	hitStep       = 5 * time.Second // interval between two samples of the hit rate, of which there are many
	// forgetAfter is the time for which the event ids of a silent worker are kept. If a
	// worker returns later, its lost events no longer matter.
	forgetAfter = time.Hour
)

// tally adds up the events of the event plane. Handlers write it, snapshots read it.
type tally struct {
	mu        sync.Mutex
	workers   map[string]*workerTally
	spoken    time.Time // when an event last brought a worker's status
	kv        recent[cluster.KVEvent]
	kvCount   uint64
	kvGaps    uint64
	kvLag     *time.Duration
	nextKV    map[cluster.InstanceID]expected
	decisions recent[cluster.RouterDecision]
	actions   recent[cluster.TopologyEvent]
	latency   []cluster.FrontendStats // within the window, oldest first
	transfers []transferTimes         // within the window, oldest first, one a second
	inFlight  map[cluster.InstanceID]cluster.FrontendStats
	gpus      nodeFigures
	admitted  uint64 // requests that decode workers have accepted
	cancelled uint64
	rejected  uint64

	lastFill     time.Time // for rates between snapshots
	rated        bool      // there were two
	lastKV       uint64
	lastAdmitted uint64
	history      history
}

// workerTally holds the newest status of a worker and the samples for its rates.
type workerTally struct {
	last    cluster.WorkerStatus
	heard   time.Time            // when last arrived, by this clock
	base    cluster.WorkerStatus // the status from which speed and busy are measured
	speed   *float64             // tokens per second; nil until there are two statuses
	busy    *float64             // fraction of time in steps; nil likewise
	encoded *float64             // images per second, of an encode worker; nil likewise
	moved   *float64             // bytes of embeddings per second, likewise
	samples []hitSample
	mute    bool // was asked and did not answer, and has not been heard since
}

// rateSpan is the minimum time between the two statuses of a rate. A change of state can
// publish a second status right after the first.
const rateSpan = 500 * time.Millisecond

// hitSample is how many prompt tokens, or images, a worker was asked for, and how many of them
// it had.
type hitSample struct {
	at             time.Time
	prompt, cached uint64
}

func sampleOf(st *cluster.WorkerStatus) hitSample {
	if !st.Role.HoldsKV() {
		return hitSample{st.UpdatedAt, st.Stats.RequestsTotal, st.Stats.ImagesCachedTotal}
	}
	return hitSample{st.UpdatedAt, st.Stats.PromptTokensTotal, st.Stats.CachedTokensTotal}
}

func newTally() *tally {
	return &tally{
		workers: map[string]*workerTally{}, nextKV: map[cluster.InstanceID]expected{},
		inFlight: map[cluster.InstanceID]cluster.FrontendStats{}, gpus: nodeFigures{},
	}
}

func (t *tally) workerStatus(e events.Event) {
	var st cluster.WorkerStatus
	if e.Decode(&st) == nil {
		t.status(st)
		t.mu.Lock()
		t.spoken = time.Now()
		t.mu.Unlock()
	}
}

// status records a worker's newest status.
func (t *tally) status(st cluster.WorkerStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[st.Name]
	if w == nil {
		w = &workerTally{}
		t.workers[st.Name] = w
	}
	if !st.UpdatedAt.After(w.last.UpdatedAt) {
		return
	}
	if w.last.UpdatedAt.IsZero() || w.last.InstanceID != st.InstanceID || w.last.Stats.StepsTotal > st.Stats.StepsTotal {
		*w = workerTally{} // a new run counts from zero again
		if !st.StartedAt.IsZero() && st.UpdatedAt.Sub(st.StartedAt) <= hitWindow {
			w.samples = append(w.samples, hitSample{at: st.StartedAt})
		}
	} else if st.Role == cluster.RoleDecode && st.Stats.RequestsTotal > w.last.Stats.RequestsTotal {
		t.admitted += st.Stats.RequestsTotal - w.last.Stats.RequestsTotal
	}
	if st.Role == cluster.RoleDecode && w.last.InstanceID != 0 {
		t.transferred(w.last.Stats.TransferTimes, st.Stats.TransferTimes)
	}
	w.last, w.heard, w.mute = st, time.Now(), false
	w.measure()
	sample := sampleOf(&st)
	if n := len(w.samples); n >= 2 && st.UpdatedAt.Sub(w.samples[n-2].at) < hitStep {
		w.samples[n-1] = sample // the newest sample replaces the previous one
	} else {
		w.samples = append(w.samples, sample)
	}
	for len(w.samples) > 2 && st.UpdatedAt.Sub(w.samples[1].at) > hitWindow {
		w.samples = w.samples[1:]
	}
}

// stored records the statuses that the store has.
func (t *tally) stored(view View) {
	for _, st := range view.Status {
		t.status(st)
	}
}

// polled records what workers answered that were asked at that time, and which of them did
// not answer. An event that came in the meantime is as good as an answer.
func (t *tally) polled(asked time.Time, answers map[cluster.InstanceID]cluster.WorkerStatus, mute map[cluster.InstanceID]bool) {
	for _, st := range answers {
		t.status(st)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.workers {
		w.mute = mute[w.last.InstanceID] && !w.heard.After(asked)
	}
}

func (t *tally) nodeStats(e events.Event) {
	var st cluster.NodeStats
	if e.Decode(&st) == nil {
		t.node(st.NodeID, st.GPU)
	}
}

// node records a node's report about its GPUs.
func (t *tally) node(id string, r cluster.GPUReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gpus[id] = heardReport{r, time.Now()}
}

func (t *tally) decision(e events.Event) {
	var d cluster.RouterDecision
	if e.Decode(&d) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A frontend publishes a decision again once it knows where the prompt was computed.
	same := func(o cluster.RouterDecision) bool { return o.RequestID == d.RequestID && o.Phase == d.Phase }
	if !t.decisions.replace(same, d) {
		t.decisions.add(d)
	}
}

func (t *tally) action(e events.Event) {
	var a cluster.TopologyEvent
	if e.Decode(&a) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.actions.add(a)
}

func (t *tally) frontend(e events.Event) {
	var f cluster.FrontendStats
	if e.Decode(&f) != nil {
		return
	}
	f.Time = time.Now() // windows use the observer's clock
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight[f.InstanceID] = f
	t.cancelled += uint64(f.Cancelled)
	t.rejected += uint64(f.Rejected)
	t.latency = append(t.latency, f)
}

// fill copies the tallied figures into a snapshot.
func (t *tally) fill(s *cluster.Snapshot, view View, depth *events.Depth, now time.Time) {
	t.stored(view)
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Nodes = withFigures(view.Nodes, t.gpus.fresh(now))
	s.Workers = t.fillWorkers(view, now)
	s.Latency = t.fillLatency(now)
	t.fillQueue(s, depth, now)
	s.Decisions, s.Actions = t.decisions.newestFirst(), t.actions.newestFirst()
	t.fillEvents(s, now)
	t.lastFill = now
}

func (t *tally) fillWorkers(view View, now time.Time) []cluster.Worker {
	// Without events, the periodic writes to the store show that a worker lives.
	silent := cluster.SilentAfter
	if now.Sub(t.spoken) > cluster.SilentAfter/2 {
		silent = 3 * cluster.HeartbeatInterval / 2
	}
	workers := view.Workers()
	known := map[string]bool{}
	for i := range workers {
		w := &workers[i]
		known[w.Name] = true
		wt := t.workers[w.Name]
		if wt == nil || wt.last.InstanceID != w.InstanceID {
			continue
		}
		// Events are fresher than the store, except for the end of a worker.
		w.WorkerStatus = wt.last
		w.TokS, w.Busy = wt.speed, wt.busy
		if w.Role.HoldsKV() {
			w.HitRate = wt.hits()
		} else {
			w.Images = &cluster.ImageRates{EncodedS: wt.encoded, HitRate: wt.hits(), MovedBS: wt.moved}
		}
		w.HeardAt, w.Stale = wt.heard, wt.mute || now.Sub(wt.heard) > silent
		if !w.StartedAt.IsZero() && w.InstanceID != 0 {
			up := now.Sub(w.StartedAt)
			w.Uptime = &up
		}
	}
	for name := range t.workers {
		if !known[name] {
			delete(t.workers, name)
		}
	}
	for id, next := range t.nextKV {
		if now.Sub(next.at) > forgetAfter {
			delete(t.nextKV, id)
		}
	}
	return workers
}

// measure updates busy and speed since the last measurement. Speed counts generated
// tokens, or computed ones for a prefill worker. An encode worker has images and embeddings.
func (w *workerTally) measure() {
	if w.base.UpdatedAt.IsZero() {
		w.base = w.last
		return
	}
	dt := w.last.UpdatedAt.Sub(w.base.UpdatedAt)
	if dt < rateSpan {
		return
	}
	n := w.last.Stats.GeneratedTotal - w.base.Stats.GeneratedTotal
	if w.last.Role == cluster.RolePrefill {
		n = w.last.Stats.ComputedTotal - w.base.Stats.ComputedTotal
	}
	speed := float64(n) / dt.Seconds()
	// A step counts when it ends. A long one can therefore exceed the time since the last
	// status.
	busy := min(float64(w.last.Stats.StepNanosTotal-w.base.Stats.StepNanosTotal)/float64(dt), 1)
	was := w.base.Stats
	w.speed, w.busy, w.base = &speed, &busy, w.last
	if !w.last.Role.HoldsKV() {
		encoded := float64(w.last.Stats.EncodedTotal-was.EncodedTotal) / dt.Seconds()
		moved := float64(w.last.Stats.TransferBytesTotal-was.TransferBytesTotal) / dt.Seconds()
		w.speed, w.encoded, w.moved = nil, &encoded, &moved
	}
}

// hits returns the fraction of prompt tokens, or images, found in the cache, over the period
// of the samples.
func (w *workerTally) hits() *float64 {
	if len(w.samples) == 0 {
		return nil
	}
	first, last := w.samples[0], w.samples[len(w.samples)-1]
	if last.prompt <= first.prompt {
		return nil
	}
	r := float64(last.cached-first.cached) / float64(last.prompt-first.prompt)
	return &r
}

func (t *tally) fillQueue(s *cluster.Snapshot, depth *events.Depth, now time.Time) {
	q := &s.Queue
	if depth != nil {
		q.Prefill, q.PrefillBusy, q.Dead = &depth.Pending, &depth.InWork, &depth.DeadLettered
	}
	waiting, remote, engines := 0, 0, 0
	for _, w := range s.Workers {
		if !w.Role.HoldsKV() {
			continue // it has images, not sequences
		}
		engines++
		st := w.Stats
		waiting += st.Waiting
		remote += st.RemoteWait
		q.Preempted += st.PreemptedTotal
		q.Fallbacks += st.FallbackTotal
	}
	if engines > 0 {
		q.Waiting, q.RemoteWait = &waiting, &remote
	}
	q.Cancelled, q.Rejected = t.cancelled, t.rejected
	flight, seen := 0, false
	for id, f := range t.inFlight {
		if now.Sub(f.Time) > 10*time.Second {
			delete(t.inFlight, id)
			continue
		}
		flight += f.InFlight
		seen = true
	}
	if seen {
		q.InFlight = &flight
	}
	if dt := now.Sub(t.lastFill).Seconds(); !t.lastFill.IsZero() && dt > 0 {
		r := float64(t.admitted-t.lastAdmitted) / dt
		q.AdmittedS = &r
	}
	t.lastAdmitted = t.admitted

	var sample *float64
	if depth != nil {
		v := float64(depth.Pending + waiting)
		sample = &v
	}
	t.history.add(now, sample)
	q.History = slices.Clone(t.history.samples)
}
