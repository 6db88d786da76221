package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// errHung is for work of the device that did not end in time.
var errHung = errors.New("the work has not ended")

// skipped is why a case cannot run here.
type skipped string

func (s skipped) Error() string { return string(s) }

// Child does what the standard input says, in a process that may come to harm; see
// [Options.Child]. What it finds goes to standard output.
func Child(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	return child(ctx, stdin, stdout, openDriver)
}

// openDriver opens the driver of this machine, or the pretended one.
func openDriver(s spec) (driver.Driver, error) {
	if s.Pretended {
		return pretend()
	}
	return driver.Open()
}

func child(ctx context.Context, stdin io.Reader, stdout io.Writer, open func(s spec) (driver.Driver, error)) error {
	var s spec
	if err := json.NewDecoder(stdin).Decode(&s); err != nil {
		return fmt.Errorf("read what is to be checked: %w", err)
	}
	if s.Peer != nil {
		return s.Peer.run(ctx, s, open)
	}
	say := &speaker{to: json.NewEncoder(stdout)}
	r, err := newRig(ctx, s, open)
	if err == nil {
		r.alive = say.alive
	}
	if err != nil {
		return errors.Join(err, say.say(message{Unusable: err.Error()}))
	}
	if err := say.say(message{About: &r.about}); err != nil {
		return errors.Join(err, r.close(ctx))
	}
	for _, c := range Cases() {
		if !slices.Contains(s.Cases, c.Name) {
			continue
		}
		if err := say.say(message{Begin: c.Name}); err != nil {
			return errors.Join(err, r.close(ctx))
		}
		result := r.result(ctx, c)
		if err := say.say(message{Result: &result}); err != nil {
			return errors.Join(err, r.close(ctx))
		}
		if result.End == Hung || result.End == Lost {
			return fmt.Errorf("%s: %s", c.Name, result.Why) // nothing more can be done here
		}
	}
	return r.close(ctx)
}

// speaker writes messages, from several goroutines.
type speaker struct {
	mu sync.Mutex
	to *json.Encoder
}

func (s *speaker) say(m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Encode(m)
}

// heartbeat is the interval of a process's signs of life while the host works, and
// longestBeat the time for which it sends them.
const (
	heartbeat   = 5 * time.Second
	longestBeat = 3 * time.Minute
)

// alive says that the process lives while f runs, which is work of the host for longer than
// a process may be silent.
func (s *speaker) alive(what string, f func() error) error {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for range int(longestBeat / heartbeat) {
			select {
			case <-tick.C:
				if s.say(message{Busy: what}) != nil {
					return // nobody listens
				}
			case <-quit:
				return
			}
		}
	}()
	err := f()
	close(quit)
	<-ended
	return err
}

// result runs a case.
func (r *rig) result(ctx context.Context, c Case) Result {
	begin := time.Now()
	r.begin()
	f, err := c.run(ctx, r)
	out := Result{Case: c.Name, Phase: c.Phase, About: r.about, State: r.state(), Date: begin.UTC(), Seconds: time.Since(begin).Seconds(), Notes: f.notes}
	out.Kernels, out.PTX = r.used()
	var skip skipped
	switch {
	case errors.As(err, &skip):
		out.End = Skipped
	case errors.Is(err, errHung):
		out.End = Hung
	case errors.Is(err, device.ErrLost), r.dev.Err() != nil:
		out.End = Lost
		err = errors.Join(err, r.dev.Err())
	case err != nil:
		out.End = Failed
	default:
		out.End = Passed
		out.Figure, out.Unit, out.Samples, out.Also, out.Golden = f.figure, f.unit, f.samples, f.also, f.golden
		if f.least > 0 && f.took > 0 && r.spec.Rates != nil {
			out.FloorPercent, out.Rates = 100*f.least/f.took, r.spec.Rates
		}
	}
	if err != nil {
		out.Why = err.Error()
	}
	return out
}
