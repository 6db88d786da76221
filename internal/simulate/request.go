package simulate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/fairqueue"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// maxQueuedTokens and aheadOfWorkers are those of the frontend.
const (
	maxQueuedTokens = 64 << 20
	aheadOfWorkers  = 2
)

// job is a request on its way.
type job struct {
	*Request
	s      *simulation
	number uint64
	place  int // in simulation.jobs
	input  int // tokens of the prompt
	came   time.Duration
	tokens []uint32 // of the prompt, until a decode worker has it
	routed router.Request

	pass    *fairqueue.Pass
	flight  *router.Flight
	stream  *engine.Stream
	worker  *worker // that decodes
	hop     *hop    // of a prompt that a prefill worker computes
	why     string  // it is computed there, or not
	strands time.Duration

	first, last time.Duration // when these tokens came
	output1     engine.FirstToken
	outputs     int // tokens so far
	ended       bool
}

// arrive takes a request in at its time.
func (s *simulation) arrive(r *Request) error {
	s.arrived++
	j := &job{Request: r, s: s, number: s.arrived, input: r.Input(), came: s.now}
	s.open++
	s.tally.arrive(j)
	if d := profile.Seconds(s.Profile.Overheads.Frontend); d > 0 {
		s.at(s.now+d, j.enter)
		return nil
	}
	return j.enter()
}

// capacity is how many sequences the frontend sends to workers at most.
func (s *simulation) capacity() int {
	return aheadOfWorkers * s.Profile.Limits.MaxSeqs * max(1, s.ready(cluster.RoleDecode))
}

// past is a context that has ended: a pass that is admitted does not look at it.
var past = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// enter queues the request at the frontend.
func (j *job) enter() error {
	s := j.s
	if j.input < 1 || j.Output < 1 || j.input+j.Output > j.longest() {
		return j.refuse(RefusedTooLong)
	}
	s.gate.SetCapacity(s.capacity())
	passes, err := s.gate.Reserve("", 1, int64(j.input), s.now.Seconds())
	if err != nil { // fairqueue.ErrFull is all that it returns
		return j.refuse(RefusedQueueFull)
	}
	j.pass = passes[0]
	s.queue = append(s.queue, j)
	return s.pump()
}

// longest returns how many tokens a request may have, of prompt and answer.
func (j *job) longest() int {
	l := j.s.Profile.Limits
	return min(l.MaxContext, l.KVTokens())
}

// pump routes the requests that the gate has admitted.
func (s *simulation) pump() error {
	for len(s.queue) > 0 && s.queue[0].pass.Wait(past) == nil {
		j := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if err := j.route(); err != nil {
			return err
		}
	}
	return nil
}

// describe describes the request to the router.
func (j *job) describe() {
	if j.tokens != nil {
		return
	}
	l := j.s.Profile.Limits
	j.tokens = appendTokens(make([]uint32, 0, j.input), j.Parts)
	chain := blockhash.Chain{BlockSize: l.BlockSize, Seed: cluster.DefaultHashSeed}
	chain.Extend(j.tokens)
	j.routed = router.Request{ID: strconv.FormatUint(j.number, 10), PromptTokens: j.input, BlockSize: l.BlockSize, Hashes: chain.Seq}
}

// route sends the request to workers: first to a prefill worker, if one shall compute its
// prompt and the frontend decides that.
func (j *job) route() error {
	s := j.s
	if s.ready(cluster.RoleDecode) == 0 {
		return j.strand()
	}
	j.describe()
	if s.Strategy == protocol.StrategyPrefillFirst && j.hop == nil && j.why == "" {
		done, err := j.prefillFirst()
		if done || err != nil {
			return err
		}
	}
	return j.decode()
}

// decode sends the request to a decode worker.
func (j *job) decode() error {
	s := j.s
	s.index.Lookup(j.routed.Hashes, &s.match)
	v := s.viewOf(cluster.RoleDecode)
	d, flight, err := s.load.Choose(j.routed, v, s.policy.Pick)
	switch {
	case errors.Is(err, router.ErrNoWorkers):
		return j.strand()
	case err != nil:
		return errors.Join(j.refuse(RefusedBusy), j.hop.abandon())
	}
	j.flight, j.worker = flight, s.find(d.Chosen.ID)
	if j.hop != nil {
		flight.Prefilled() // a prefill worker computes the prompt
	}
	if j.place = len(s.jobs); len(s.free) > 0 {
		j.place = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		s.jobs[j.place] = j
	} else {
		s.jobs = append(s.jobs, j)
	}
	r := engine.Request{ID: j.routed.ID, Tokens: j.tokens, Stop: protocol.StopConditions{MaxTokens: j.Output}, Sampling: protocol.SamplingOptions{Seed: uint64(j.place)}}
	if s.Strategy == protocol.StrategyDecodeFirst || j.hop != nil {
		hints := s.prefillHints(j)
		r.Decide = func(prompt, cached int) engine.Decision { return j.decide(prompt, cached, hints) }
		r.Remote = j.reserved
	}
	j.stream, err = j.worker.engine.Engine.Submit(context.Background(), r)
	if err != nil { // its queue is full
		s.vacate(j)
		flight.End()
		return errors.Join(j.refuse(RefusedOverloaded), j.hop.abandon())
	}
	j.tokens = nil
	return j.worker.step()
}

func (s *simulation) vacate(j *job) {
	s.jobs[j.place] = nil
	s.free = append(s.free, j.place)
}

// strand keeps the request for a while until there is a decode worker.
func (j *job) strand() error {
	if j.strands == 0 {
		j.strands = j.s.now + cluster.SuccessorWait
		j.s.at(j.strands, func() error {
			at := slices.Index(j.s.stranded, j)
			if at < 0 {
				return nil
			}
			j.s.stranded = slices.Delete(j.s.stranded, at, at+1)
			return errors.Join(j.refuse(RefusedNoWorker), j.hop.abandon())
		})
	}
	j.s.stranded = append(j.s.stranded, j)
	return nil
}

// output takes in what a worker gave for the request.
func (j *job) output(o engine.Output) error {
	s := j.s
	if o.Err != nil {
		return o.Err // nothing fails here but by a mistake of the simulation
	}
	if o.First != nil {
		j.first, j.output1 = s.now, *o.First
		j.flight.Prefilled()
		s.tally.first(j)
		if !o.First.Remote {
			if err := j.hop.abandon(); err != nil {
				return err
			}
		}
	} else {
		s.tally.gap(s.now - j.last)
	}
	j.last = s.now
	j.outputs += len(o.Tokens)
	if filled := (j.input+j.outputs)/j.routed.BlockSize - len(j.routed.Hashes); filled > 0 && (j.input+j.outputs)%j.routed.BlockSize == 0 {
		j.flight.Grow(filled)
	}
	if o.Finish == protocol.FinishNone {
		return nil
	}
	j.flight.End()
	s.vacate(j)
	s.tally.finish(j)
	return j.leave(true)
}

// leave ends the request.
func (j *job) leave(answered bool) error {
	s := j.s
	if j.ended {
		panic("simulate: a request ends twice")
	}
	j.ended = true
	s.open--
	if j.pass != nil {
		j.pass.Leave()
	}
	if answered && j.Then != nil {
		if r, ok := j.Then(s.now); ok {
			s.open++ // until it arrives
			s.at(max(r.At, s.now), func() error {
				s.open--
				return s.arrive(&r)
			})
		}
	}
	return s.pump()
}

func (j *job) refuse(why string) error {
	j.s.tally.refuse(j, why)
	return j.leave(false)
}
