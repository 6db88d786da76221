package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/profile"
)

// worker is an engine in virtual time: the product's scheduler and block pool on a backend
// that takes the time that a profile says. What a step changes outside of the engine comes at
// its end; what its admission changes, at its beginning.
type worker struct {
	s       *simulation
	id      cluster.InstanceID
	name    string
	role    cluster.Role
	profile *profile.Profile
	state   State
	since   time.Duration // in this state
	started time.Duration // when it took its devices
	ordered time.Duration // when it was told to start, flip or drain
	// readySince is when it could compute first; -1 before.
	readySince time.Duration
	flips      bool // to the other role, once it is drained

	engine  *engine.Stepper
	backend mock.Timed
	ahead   time.Duration // that the engine's clock is ahead, during a step
	chunks  bool          // the present step has chunks of prompts

	device *device
	left   time.Duration // of the present step, when the device last began or left it
	busy   bool          // a step is being computed, or what it gave is being handed out
	again  bool          // step was called meanwhile
	began  bool          // the backend was called in the present Step
	done   func() error  // ends the step

	answered []*job     // that get a token at the end of the step, with repetitions
	asked    []*job     // whose prompts shall be computed elsewhere, admitted in this Step
	hops     []*hop     // whose prompts it computes
	early    []progress // of them, by admission
	progress []progress // and by the step
	// earlyPrompts are those that admission completed, prompts those of the step.
	earlyPrompts, prompts []computedPrompt

	events  []kvEvent      // not yet published
	status  workerStatus   // as the router knows it
	held    int            // messages of the prefill queue that it works on
	egress  int            // transfers from it
	ingress int            // transfers to it
	worked  time.Duration  // in steps that have begun, less what of them is still to come
	seen    observedWorker // by the controller
}

// workerStatus is what a worker tells the router from time to time.
type workerStatus struct {
	rate     float64
	inUse    int // KV blocks
	prompts  int // being computed
	waiting  int // tokens of them
	reported bool
}

type progress struct {
	hop      *hop
	computed int
}

type computedPrompt struct {
	hop  *hop
	held *engine.Held
	err  error
}

// kvEvent tells the router's index of blocks.
type kvEvent struct {
	stored bool
	hashes []uint64
}

// newWorker returns a worker of a role that has an empty cache.
func (s *simulation) newWorker(id cluster.InstanceID, role cluster.Role) (*worker, error) {
	w := &worker{s: s, id: id, name: cluster.WorkerName(int(id)), since: s.now, ordered: s.now, started: s.now, readySince: -1}
	w.done = w.endStep
	w.device = s.deviceOfNext()
	return w, w.equip(role)
}

// equip gives the worker an engine for a role.
func (w *worker) equip(role cluster.Role) error {
	w.role, w.profile = role, w.s.Profile
	if role == cluster.RolePrefill {
		w.profile = w.s.PrefillProfile
	}
	l := w.profile.Limits
	w.backend = mock.Timed{BlockSize: l.BlockSize, MaxContext: l.MaxContext, Took: w.took, Token: w.token}
	var observe func(engine.StepReport)
	if w.s.Observe != nil || w.s.Controller != nil {
		observe = func(r engine.StepReport) {
			w.seen.add(r)
			if w.s.Observe != nil {
				w.s.Observe(w.name, r)
			}
		}
	}
	var err error
	w.engine, err = engine.NewStepper(engine.Config{
		Observe: observe, NumBlocks: l.KVBlocks, MaxSeqs: l.MaxSeqs, MaxBatchTokens: l.MaxBatchTokens, ITLTarget: profile.Seconds(l.ITLTarget), Sink: w,
		Now: func() time.Time { return time.Unix(0, 0).Add(w.s.now + w.ahead) },
	}, &w.backend)
	if err != nil {
		return fmt.Errorf("simulate worker %s: %w", w.name, err)
	}
	return nil
}

// took is called when the backend begins a step.
func (w *worker) took(batch []engine.BatchSeq) time.Duration {
	w.began = true
	w.admitted()
	var work profile.Work
	for i := range batch {
		work.Add(batch[i].Start, len(batch[i].Tokens))
	}
	w.chunks = work.Tokens > 0
	w.ahead = profile.Seconds(w.profile.StepSeconds(work))
	return w.ahead
}

// token answers the request whose place is the seed of its draws.
func (w *worker) token(c *engine.Choice) uint32 {
	j := w.s.jobs[c.Sampling.Seed]
	w.answered = append(w.answered, j)
	return j.answerToken(j.number, c.Position)
}

// Stored, Removed and Cleared make the worker the sink of its pool.
func (w *worker) Stored(_ *uint64, _ int, blocks []cluster.KVStoredBlock) {
	hashes := make([]uint64, len(blocks))
	for i, b := range blocks {
		hashes[i] = b.BlockHash
	}
	w.events = append(w.events, kvEvent{true, hashes})
}

// Removed implements engine.KVSink.
func (w *worker) Removed(hashes []uint64, _ string) {
	w.events = append(w.events, kvEvent{false, append([]uint64(nil), hashes...)})
}

// Cleared implements engine.KVSink. Nobody clears a cache here.
func (w *worker) Cleared(int) {}

// publish sends the KV events of the worker to the router's index.
func (w *worker) publish() {
	if len(w.events) == 0 {
		return
	}
	events := w.events
	w.events = nil
	w.s.at(w.s.now+w.s.EventDelay, func() error {
		if w.state == gone {
			return nil
		}
		for _, e := range events {
			if e.stored {
				w.s.index.Store(w.id, kvindex.Device, e.hashes)
			} else {
				w.s.index.Remove(w.id, kvindex.Device, e.hashes)
			}
		}
		return nil
	})
}

// step begins the next step of an idle worker. What it calls may call it again.
func (w *worker) step() error {
	if w.busy {
		w.again = true
		return nil
	}
	for {
		w.busy, w.again, w.began, w.ahead = true, false, false, 0
		progress, err := w.engine.Step(context.Background())
		took := w.ahead
		w.ahead = 0
		if err != nil {
			return fmt.Errorf("simulate worker %s: %w", w.name, err)
		}
		if !w.began {
			w.admitted()
		} else {
			w.s.result.Steps++
		}
		if took > 0 {
			w.worked += took
			w.device.compute(w, took)
			return w.handEarly()
		}
		if err := errors.Join(w.handEarly(), w.collect()); err != nil {
			return err
		}
		w.busy = false
		if !progress && !w.again {
			return w.rest()
		}
	}
}

// endStep comes at the end of a step.
func (w *worker) endStep() error {
	if err := w.collect(); err != nil {
		return err
	}
	w.busy = false
	return w.step()
}

// admitted notes what admission has changed: it shows before the step ends.
func (w *worker) admitted() {
	w.publish()
	w.takePrompts()
	w.early, w.progress = w.progress, nil
	w.earlyPrompts, w.prompts = w.prompts, nil
}

// handEarly hands out what admission gave.
func (w *worker) handEarly() error {
	asked := w.asked
	w.asked = nil
	for _, j := range asked {
		if err := j.fill(); err != nil {
			return err
		}
	}
	return handOut(&w.early, &w.earlyPrompts)
}

// collect hands out what a step gave.
func (w *worker) collect() error {
	w.publish()
	w.takePrompts()
	if err := handOut(&w.progress, &w.prompts); err != nil {
		return err
	}
	for _, j := range w.answered {
		o, ok := j.stream.Take()
		if !ok {
			continue
		}
		if err := j.output(o); err != nil {
			return err
		}
	}
	w.answered = w.answered[:0]
	return nil
}

// handOut tells hops how far their prompts are computed.
func handOut(chunks *[]progress, prompts *[]computedPrompt) error {
	for _, p := range *chunks {
		if err := p.hop.advance(p.computed); err != nil {
			return err
		}
	}
	*chunks = (*chunks)[:0]
	for _, p := range *prompts {
		if err := p.hop.complete(p.held, p.err); err != nil {
			return err
		}
	}
	*prompts = (*prompts)[:0]
	return nil
}

// takePrompts notes the prompts that are computed.
func (w *worker) takePrompts() {
	if len(w.hops) == 0 {
		return
	}
	kept := w.hops[:0]
	for _, h := range w.hops {
		if held, done, err := h.prompt.Take(); done {
			w.prompts = append(w.prompts, computedPrompt{h, held, err})
		} else {
			kept = append(kept, h)
		}
	}
	clear(w.hops[len(kept):])
	w.hops = kept
}

// load returns how much a worker has to do, for the choice of one that leaves.
func (w *worker) load() int {
	st := w.engine.Engine.Stats()
	return st.Running + st.Waiting + st.RemoteWait + len(w.hops) + w.held
}

// rest is called when there is nothing to compute.
func (w *worker) rest() error {
	if w.state == Draining {
		return w.s.drained(w)
	}
	return nil
}

// report makes the present figures of the worker known to the router.
func (w *worker) report() {
	st := w.engine.Engine.Stats()
	w.status = workerStatus{rate: st.PrefillRate, inUse: st.KVUsed(), prompts: st.Prefilling, waiting: st.PrefillTokens, reported: true}
}

// workedBy returns how long the worker has computed until now.
func (w *worker) workedBy(now time.Duration) time.Duration {
	if w.busy {
		return w.worked - w.device.left(w, now)
	}
	return w.worked
}
