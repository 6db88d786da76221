package engine

import "context"

// Stepper runs an engine without goroutines and timers, in place of Engine.Run. Its caller
// decides when a step happens, and with Config.Now and a backend that takes no real time
// also how long it takes. It is for simulations in virtual time and for tests.
//
// One goroutine at a time may use the Stepper, its engine, and what that hands out. All
// methods of the engine act at once, so they never wait for the scheduler. Two are not for
// a Stepper: Run, and Prefill, in whose place it has its own. The engine calls
// Request.Remote in the step that admits the request. Remote must return before it ends
// the reservation, and the reservation's context means nothing. As always, functions that
// the engine calls during a step must not call methods of the engine.
//
// A Stepper needs no Close. Engine.Check tells whether blocks are still in use.
type Stepper struct{ Engine *Engine }

// NewStepper returns an engine as New does, with its Stepper.
func NewStepper(cfg Config, backend Backend) (*Stepper, error) {
	e, err := New(cfg, backend)
	if err != nil {
		return nil, err
	}
	e.mail = nil
	return &Stepper{e}, nil
}

// stepped reports whether a Stepper runs the engine. What it is told then takes effect at
// once, on the caller's goroutine, which is that of the scheduler.
func (e *Engine) stepped() bool { return e.mail == nil }

// Step does what Run does between two reads of its mailbox: it admits sequences, has the
// backend compute a batch and hands out the results. progress is false when there was
// nothing to compute; another Step then changes nothing until a request comes, ends, or
// its KV arrives. An error ends the engine, as it would end Run.
func (s *Stepper) Step(ctx context.Context) (progress bool, err error) {
	return s.Engine.tick(ctx)
}

// Prefill queues a prompt as Engine.Prefill does, but does not wait for it.
func (s *Stepper) Prefill(ctx context.Context, r PrefillRequest) (*Prefilling, error) {
	seq, err := s.Engine.submitPrefill(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Prefilling{s.Engine, seq}, nil
}

// Prefilling is a prompt on its way through a Stepper.
type Prefilling struct {
	e *Engine
	s *sequence
}

// Take returns what Engine.Prefill would return, once; done is false if it would wait.
func (p *Prefilling) Take() (held *Held, done bool, err error) {
	select {
	case r := <-p.s.prefill.done:
		return r.held, true, r.err
	default:
		return nil, false, nil
	}
}

// Cancel ends the computation. Take must not be called afterwards.
func (p *Prefilling) Cancel() { p.e.abort(p.s) }
