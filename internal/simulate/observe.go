package simulate

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
)

// Observation is what a controller sees: what has happened since its last call, and how the
// cluster is now. Times are since the beginning of the simulation.
type Observation struct {
	From, To time.Duration
	Arrivals []Arrival
	Firsts   []First
	Ends     []End
	Refused  int
	Changes  []Change // those of the fleet that are over

	Queue Queue
	// Workers are those that are not gone. Prefill and Decode are the numbers that were asked
	// for last.
	Workers         []WorkerView
	Prefill, Decode int
}

// Arrival is a request that came.
type Arrival struct {
	At    time.Duration
	Input int // tokens
}

// First is the first token of a request.
type First struct {
	At, TTFT time.Duration
	Input    int // tokens
	Cached   int // of them, where it was decoded
	Remote   bool
}

// End is the end of an answer.
type End struct {
	At, TTFT, E2E time.Duration
	ITL           time.Duration // mean of the answer; 0 for one of one token
	Input         int           // tokens
	Cached        int           // of them, in the cache of the worker that computed the prompt, or where it was decoded
	Output        int           // tokens
}

// Change is a worker that has started, taken the other role, or drained and gone.
type Change struct {
	Kind ChangeKind
	Role cluster.Role  // the new one; of a drained worker, the one it had
	Took time.Duration // since it was asked for
}

// ChangeKind says what a worker did.
type ChangeKind string

// Kinds of changes.
const (
	Started ChangeKind = "start"
	Flipped ChangeKind = "flip"
	Drained ChangeKind = "drain"
)

// Queue holds what waits now.
type Queue struct {
	Frontend int           // requests that no worker has
	Oldest   time.Duration // for how long the oldest of these has waited
	Prefill  int           // prompts in the prefill queue of decode-first
}

// WorkerView is a worker as a controller sees it.
type WorkerView struct {
	Name  string
	Role  cluster.Role
	State State
	Since time.Duration // when it entered that state
	// Flips is set from the order to take the other role until the worker is ready in it: it
	// drains, and then starts. Ordered is when it was told to do what it does: start, flip or drain.
	Flips   bool
	Ordered time.Duration
	// Busy is the share of the window in which it computed.
	Busy             float64
	Running, Waiting int // sequences
	PrefillTokens    int // of running prompts, still to compute
	KVUse            float64
	// Of the steps that began in the window: of those that decode, the mean time and the mean of the tokens
	// of KV that they read; of those that compute prompts, the tokens and the time.
	Step         time.Duration
	StepKV       int
	PromptTokens int
	PromptBusy   time.Duration
}

// window collects what a controller sees next.
type window struct {
	from     time.Duration
	arrivals []Arrival
	firsts   []First
	ends     []End
	refused  int
	changes  []Change
}

// observedWorker is what a worker did in a window.
type observedWorker struct {
	worked       time.Duration // when it began
	steps        int           // that decode
	stepTime     time.Duration
	stepKV       int
	promptTokens int
	promptBusy   time.Duration
}

// add counts a step.
func (o *observedWorker) add(r engine.StepReport) {
	if r.Decodes > 0 {
		o.steps, o.stepTime, o.stepKV = o.steps+1, o.stepTime+r.Busy, o.stepKV+r.DecodeContext
	}
	if r.PrefillTokens > 0 {
		o.promptTokens, o.promptBusy = o.promptTokens+r.PrefillTokens, o.promptBusy+r.Busy
	}
}

func (w *window) begin(s *simulation) {
	*w = window{from: s.now, arrivals: w.arrivals[:0], firsts: w.firsts[:0], ends: w.ends[:0], changes: w.changes[:0]}
	for _, x := range s.workers {
		x.seen = observedWorker{worked: x.workedBy(s.now)}
	}
}

func (s *simulation) observe() *Observation {
	w := &s.window
	o := &Observation{
		From: w.from, To: s.now, Arrivals: w.arrivals, Firsts: w.firsts, Ends: w.ends, Refused: w.refused, Changes: w.changes,
		Queue:   Queue{Frontend: len(s.queue) + len(s.stranded), Prefill: len(s.messages)},
		Prefill: s.want[cluster.RolePrefill], Decode: s.want[cluster.RoleDecode],
	}
	for _, list := range [][]*job{s.queue, s.stranded} {
		if len(list) > 0 {
			o.Queue.Oldest = max(o.Queue.Oldest, s.now-list[0].came)
		}
	}
	span := (s.now - w.from).Seconds()
	for _, x := range s.workers {
		st := x.engine.Engine.Stats()
		steps := max(1, x.seen.steps)
		o.Workers = append(o.Workers, WorkerView{
			Name: x.name, Role: x.role, State: x.state, Since: x.since, Flips: x.flips, Ordered: x.ordered, Busy: (x.workedBy(s.now) - x.seen.worked).Seconds() / span,
			Running: st.Running, Waiting: st.Waiting, PrefillTokens: st.PrefillTokens, KVUse: float64(st.KVUsed()) / float64(st.KVTotal),
			Step: x.seen.stepTime / time.Duration(steps), StepKV: x.seen.stepKV / steps, PromptTokens: x.seen.promptTokens, PromptBusy: x.seen.promptBusy,
		})
	}
	return o
}
