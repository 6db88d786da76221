package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Defaults of [Canary].
const (
	DefaultCanaryWait    = 10 * time.Second
	DefaultCanaryTimeout = 3 * time.Second
)

// Canary probes an endpoint with a request while no other one shows that it works. The
// request goes to the handler inside this process, without the request plane.
type Canary struct {
	Body    any           // as of a request
	Wait    time.Duration // idle time before a probe; default [DefaultCanaryWait]
	Timeout time.Duration // for the first item; default [DefaultCanaryTimeout]

	// Probe, if set, is called in place of the handler. Progress must be set, too: it
	// returns a number that changes while the endpoint works. It is read twice in Wait, and
	// a change has the effect of an item, so that answers cost nothing.
	Probe    func(context.Context) error
	Progress func() uint64
	// Proven says that the endpoint has worked just now: it begins ready.
	Proven bool
}

// ServeOption changes how an endpoint is served.
type ServeOption func(*Served) error

// WithCanary probes the endpoint: at once, and whenever no item of an answer was sent for
// the canary's Wait. Until the first probe succeeds, the endpoint is not ready. The first
// item of an answer, or its end without an error, is a success.
func WithCanary(c Canary) ServeOption {
	return func(s *Served) error {
		body, err := requestplane.Encode(c.Body)
		if err != nil {
			return fmt.Errorf("canary: %w", err)
		}
		if c.Wait <= 0 {
			c.Wait = DefaultCanaryWait
		}
		if c.Timeout <= 0 {
			c.Timeout = DefaultCanaryTimeout
		}
		s.prober = &prober{s: s, canary: c, body: body, handler: s.handler, why: "not probed yet"}
		s.prober.task = ondemand.New(s.d.ctx, s.prober.watch)
		if c.Progress == nil {
			s.handler = s.prober.handle
		}
		if c.Proven {
			s.prober.alive, s.prober.why = time.Now(), ""
		}
		return nil
	}
}

// WithHealthOf gives the endpoint the health of another one, which needs the same to work.
func WithHealthOf(other *Served) ServeOption {
	return func(s *Served) error {
		s.health = other
		return nil
	}
}

// Health says whether an endpoint works.
type Health struct {
	Ready bool
	Why   string // why it is not ready
}

// Health returns the health of every endpoint that is served or announced. An endpoint
// without a canary is ready.
func (d *DistributedRuntime) Health() map[cluster.Endpoint]Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[cluster.Endpoint]Health, len(d.served))
	for s := range d.served {
		out[s.name] = s.Health()
	}
	return out
}

// Health says whether the endpoint works, as far as its canary knows.
func (s *Served) Health() Health {
	switch {
	case s.health != nil:
		return s.health.Health()
	case s.prober != nil:
		return s.prober.health()
	}
	return Health{Ready: true}
}
