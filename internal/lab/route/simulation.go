package route

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// Delays of what the router hears of the workers.
const (
	eventDelay   = 5 * time.Millisecond
	statusPeriod = time.Second
)

// simulation is a run in progress.
type simulation struct {
	Config
	now     time.Duration
	queue   agenda
	order   uint64 // of events at the same time
	workers []*worker
	jobs    []*job         // by number, once they have arrived
	rates   []float64      // of the workers, as the router knows them
	index   *kvindex.Index // as of events
	loads   []*router.Load // of the frontends
	match   kvindex.Match
	firsts  []time.Duration
	answer  func(*job, engine.Output) error // beside what all simulations do
	open    int                             // requests that are not done
	spent   time.Duration
}

func newSimulation(c Config, workers int) (*simulation, error) {
	s := &simulation{Config: c, index: kvindex.New(kvindex.Config{}), rates: make([]float64, workers), jobs: make([]*job, len(c.Requests)), open: len(c.Requests)}
	s.answer = func(*job, engine.Output) error { return nil }
	for i := range workers {
		w, err := newWorker(i+1, &s.Config, &s.now)
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

func (s *simulation) at(t time.Duration, do func() error) {
	s.order++
	heap.Push(&s.queue, event{t, s.order, do})
}

// run calls arrive for each request and plays until all are done and idle workers have
// all their blocks.
func (s *simulation) run(arrive func(i int) error) error {
	next := 0
	s.at(statusPeriod, s.status)
	for s.open > 0 {
		if next < len(s.Requests) {
			at := time.Duration(float64(s.Requests[next].At) / s.Speed)
			if at <= s.queue[0].at {
				s.now = max(s.now, at)
				if err := arrive(next); err != nil {
					return err
				}
				next++
				continue
			}
		}
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		if err := e.do(); err != nil {
			return err
		}
	}
	for _, w := range s.workers {
		if err := w.engine.Engine.Check(context.Background(), true); err != nil {
			return fmt.Errorf("worker %s after the last request: %w", w.name, err)
		}
	}
	return nil
}

// submit hands a request to a worker. with holds what the worker does not fill in.
func (s *simulation) submit(w *worker, j *job, with engine.Request) error {
	if err := w.submit(j, with); err != nil {
		return err
	}
	return s.step(w)
}

// step starts the next step of an idle worker.
func (s *simulation) step(w *worker) error {
	for !w.busy {
		took, progress, err := w.step()
		if err != nil || !progress {
			return err
		}
		s.publish(w, w.early)
		if took == 0 {
			if err := s.collect(w); err != nil {
				return err
			}
			continue
		}
		w.busy = true
		s.at(s.now+took, func() error {
			w.busy = false
			if err := s.collect(w); err != nil {
				return err
			}
			return s.step(w)
		})
	}
	return nil
}

// collect hands out what a step gave.
func (s *simulation) collect(w *worker) error {
	s.publish(w, len(w.events))
	w.rate = w.engine.Engine.Stats().PrefillRate
	for _, i := range w.answered {
		j := s.jobs[i]
		o, ok := j.stream.Take()
		if !ok {
			continue
		}
		if o.Err != nil {
			return fmt.Errorf("request %d: %w", i, o.Err)
		}
		if o.First != nil {
			j.flight.Prefilled()
			s.firsts = append(s.firsts, s.now-j.arrived)
			w.reused += o.First.Cached / BlockSize
			w.blocks += len(j.Hashes)
		}
		if err := s.answer(j, o); err != nil {
			return err
		}
		j.token = s.now
		if o.Finish != protocol.FinishNone {
			j.flight.End()
			s.open--
		}
	}
	return w.collectPrompts()
}

// publish sends the first n KV events of a worker to the index.
func (s *simulation) publish(w *worker, n int) {
	if n == 0 {
		return
	}
	events := w.events[:n]
	w.events = slices.Clone(w.events[n:])
	s.at(s.now+eventDelay, func() error {
		for _, e := range events {
			if e.stored {
				s.index.Store(w.id, kvindex.Device, e.hashes)
			} else {
				s.index.Remove(w.id, kvindex.Device, e.hashes)
			}
		}
		return nil
	})
}

// status tells the router how fast the workers compute prompts.
func (s *simulation) status() error {
	for i, w := range s.workers {
		s.rates[i] = w.rate
	}
	s.at(s.now+statusPeriod, s.status)
	return nil
}
