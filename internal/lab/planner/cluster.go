package planner

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	core "github.com/dynctl/dynctl/internal/planner"
)

// Times that actions take, in seconds.
type Times struct{ Start, Flip, Drain float64 }

// chunk is the prompt tokens that a decode worker computes beside a step.
const chunk = 2048

// request is an arrival on its way.
type request struct {
	Arrival
	first, last float64 // times of the first and the last token; 0: none yet
	left        int     // tokens to come
	prompt      int     // prompt tokens to compute
}

// worker is a process on a device.
type worker struct {
	name    int
	role    cluster.Role
	state   core.WorkerState
	since   float64 // of the action under way
	action  core.ActionKind
	until   float64
	held    bool     // its device
	current *request // the prompt in hand
	queue   []*request
	running []*request
	kv      int
	busy    bool // a step is under way
	stepped func()
	// of the step under way: sequences that get a token, and prompt tokens
	decoding, tokens int
	// of the window
	steps, stepSeconds, promptSeconds float64
	promptTokens                      int
}

// event is something that happens at a time.
type event struct {
	at    float64
	order int // of its making: ties are deterministic
	do    func()
}

// agenda is a heap of events, the earliest first.
type agenda []event

func (a agenda) less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}

func (a *agenda) push(e event) {
	*a = append(*a, e)
	h := *a
	for i := len(h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (a *agenda) pop() event {
	h := *a
	first, n := h[0], len(h)-1
	h[0] = h[n]
	h[n] = event{}
	h = h[:n]
	for i := 0; ; {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < n && h.less(child, least) {
				least = child
			}
		}
		if least == i {
			*a = h
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// fleet is the cluster.
type fleet struct {
	cfg      core.Config
	hardware Linear
	times    Times
	now      float64
	events   agenda
	order    int
	workers  []*worker
	names    int
	plan     core.Plan // what was ordered last

	prompts []*request // wait for a prefill worker
	ready   []*request // wait for room on a decode worker

	// of the window
	arrived  int
	done     []*request
	finished []core.Duration
	total    int // requests done in earlier windows
}

func (f *fleet) at(t float64, do func()) {
	f.order++
	f.events.push(event{at: t, order: f.order, do: do})
}

func (f *fleet) of(role cluster.Role, state core.WorkerState) []*worker {
	var out []*worker
	for _, w := range f.workers {
		if w.held && w.role == role && w.state == state {
			out = append(out, w)
		}
	}
	return out
}

// arrive routes a request: to a prefill worker's queue, or to the decode worker with the least to do.
func (f *fleet) arrive(r *request) {
	f.arrived++
	r.left, r.prompt = r.OSL, r.ISL
	if f.plan.Prefill > 0 && r.ISL > f.plan.MaxLocalPrefill || len(f.of(cluster.RoleDecode, core.WorkerReady)) == 0 {
		f.prompts = append(f.prompts, r)
		f.feed()
		return
	}
	f.local(r)
}

func (f *fleet) local(r *request) {
	var best *worker
	least := 0
	for _, w := range f.of(cluster.RoleDecode, core.WorkerReady) {
		waiting := 0
		for _, q := range w.queue {
			waiting += q.prompt
		}
		if cost := 4*waiting + w.kv; best == nil || cost < least {
			best, least = w, cost
		}
	}
	if best == nil {
		f.prompts = append(f.prompts, r)
		return
	}
	best.queue = append(best.queue, r)
	f.step(best)
}

// feed gives waiting prompts to idle prefill workers, and to decode workers when there is none.
func (f *fleet) feed() {
	free := f.of(cluster.RolePrefill, core.WorkerReady)
	if f.plan.Prefill == 0 && len(free) == 0 && len(f.of(cluster.RoleDecode, core.WorkerReady)) > 0 {
		waiting := f.prompts
		f.prompts = nil
		for _, r := range waiting {
			f.local(r)
		}
		return
	}
	for _, w := range free {
		if len(f.prompts) == 0 {
			return
		}
		if w.current == nil {
			f.prefill(w)
		}
	}
}

func (f *fleet) prefill(w *worker) {
	r := f.prompts[0]
	f.prompts = f.prompts[1:]
	w.current = r
	took := float64(r.prompt) / f.hardware.PromptRate
	w.promptSeconds += took
	w.promptTokens += r.prompt
	f.at(f.now+took, func() {
		w.current = nil
		r.prompt = 0
		f.at(f.now+f.hardware.PromptFixed, func() { f.ready = append(f.ready, r); f.place() })
		f.feed()
		f.leave(w)
	})
}

// place gives computed prompts to the decode worker with the most room.
func (f *fleet) place() {
	for len(f.ready) > 0 {
		var best *worker
		for _, w := range f.of(cluster.RoleDecode, core.WorkerReady) {
			if best == nil || w.kv < best.kv {
				best = w
			}
		}
		r := f.ready[0]
		if best == nil || float64(best.kv+r.ISL+r.OSL) > f.hardware.Capacity {
			return
		}
		f.ready = f.ready[1:]
		best.kv += r.ISL + r.OSL - r.left
		best.running = append(best.running, r)
		f.step(best)
	}
}

// step runs one step of a decode worker: a chunk of its first prompt, and a token for each sequence.
func (f *fleet) step(w *worker) {
	if w.busy || w.role != cluster.RoleDecode || len(w.running)+len(w.queue) == 0 {
		return
	}
	w.busy = true
	took := 0.0
	decoding := len(w.running)
	if decoding > 0 {
		took = f.hardware.ITL(float64(w.kv), 0)
		w.steps++
	}
	tokens := 0
	if len(w.queue) > 0 && float64(w.kv+w.queue[0].ISL+w.queue[0].OSL) <= f.hardware.Capacity {
		tokens = min(chunk, w.queue[0].prompt)
		part := float64(tokens) / f.hardware.PromptRate
		w.promptSeconds += part
		w.promptTokens += tokens
		took += part
	} else if decoding == 0 { // a prompt larger than the memory
		w.busy = false
		return
	}
	if decoding > 0 {
		w.stepSeconds += took
	}
	w.decoding, w.tokens = decoding, tokens
	f.at(f.now+took, w.stepped)
}

// stepped ends a step.
func (f *fleet) stepped(w *worker) {
	decoding, tokens := w.decoding, w.tokens
	w.busy = false
	still := w.running[:0]
	for i, r := range w.running { // empty after a hand-over
		if i < decoding {
			f.token(w, r)
		}
		if r.left > 0 {
			still = append(still, r)
		}
	}
	w.running = still
	if tokens > 0 && len(w.queue) > 0 {
		if r := w.queue[0]; r.prompt > tokens {
			r.prompt -= tokens
		} else {
			r.prompt = 0
			w.queue = w.queue[1:]
			w.kv += r.ISL
			w.running = append(w.running, r)
			f.token(w, r)
			if r.left == 0 {
				w.running = w.running[:len(w.running)-1]
			}
		}
	}
	f.place()
	f.step(w)
	f.leave(w)
}

// token gives a sequence its next token.
func (f *fleet) token(w *worker, r *request) {
	if r.first == 0 {
		r.first = f.now
	}
	r.left--
	w.kv++
	if r.left == 0 {
		r.last = f.now
		w.kv -= r.ISL + r.OSL
		f.done = append(f.done, r)
	}
}

// seconds as the core counts them.
func duration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
