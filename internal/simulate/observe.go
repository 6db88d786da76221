package simulate

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Observation is what a controller sees: what has happened since its last call, and how the
// cluster is now. Times are since the beginning of the simulation.
type Observation struct {
	From, To time.Duration
	Arrivals []Arrival
	Firsts   []First
	Ends     []End
	Refused  int

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
	At, E2E time.Duration
	ITL     time.Duration // mean of the answer; 0 for one of one token
	Input   int
	Output  int // tokens
}

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
	// Busy is the share of the window in which it computed.
	Busy             float64
	Running, Waiting int // sequences
	PrefillTokens    int // of running prompts, still to compute
	KVUse            float64
}

// window collects what a controller sees next.
type window struct {
	from     time.Duration
	arrivals []Arrival
	firsts   []First
	ends     []End
	refused  int
}

// observedWorker is what a window began with.
type observedWorker struct{ worked time.Duration }

func (w *window) begin(s *simulation) {
	*w = window{from: s.now, arrivals: w.arrivals[:0], firsts: w.firsts[:0], ends: w.ends[:0]}
	for _, x := range s.workers {
		x.seen.worked = x.workedBy(s.now)
	}
}

func (s *simulation) observe() *Observation {
	w := &s.window
	o := &Observation{
		From: w.from, To: s.now, Arrivals: w.arrivals, Firsts: w.firsts, Ends: w.ends, Refused: w.refused,
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
		o.Workers = append(o.Workers, WorkerView{
			Name: x.name, Role: x.role, State: x.state, Since: x.since, Busy: (x.workedBy(s.now) - x.seen.worked).Seconds() / span,
			Running: st.Running, Waiting: st.Waiting, PrefillTokens: st.PrefillTokens, KVUse: float64(st.KVUsed()) / float64(st.KVTotal),
		})
	}
	return o
}
