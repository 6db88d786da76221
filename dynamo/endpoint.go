package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Request is one request to a handler.
type Request struct {
	ID      string            // the caller's
	Headers map[string]string // may be nil
	r       *requestplane.Request
}

// Decode decodes the body into v, a pointer. The error may be returned to the caller as it
// is.
func (r *Request) Decode(v any) error { return r.r.Decode(v) }

// Stopped returns a channel that is closed when the caller asks the handler to end with what
// it has; see [StopOn]. The handler then sends what is left and returns nil.
func (r *Request) Stopped() <-chan struct{} { return r.r.Stop }

type stopKey struct{}

// Stopped returns [Request.Stopped] for the context of a function that [Stream] made a handler
// of. For other contexts it returns nil, which is never closed.
func Stopped(ctx context.Context) <-chan struct{} {
	stop, _ := ctx.Value(stopKey{}).(<-chan struct{})
	return stop
}

// Handler answers one request. It calls send for each item of the answer, in order. Send
// blocks while the caller does not read, and fails when the caller has left; the handler
// returns then. The context ends when the caller leaves or its deadline passes. A returned
// [Error] reaches the caller as it is, any other one with the kind [Internal].
type Handler func(ctx context.Context, r *Request, send func(item any) error) error

// Unary makes a handler of a function with one answer.
func Unary[Q, A any](f func(ctx context.Context, q Q) (A, error)) Handler {
	return func(ctx context.Context, r *Request, send func(any) error) error {
		var q Q
		if err := r.Decode(&q); err != nil {
			return err
		}
		a, err := f(ctx, q)
		if err != nil {
			return err
		}
		return send(a)
	}
}

// Stream makes a handler of a function that sends any number of answers.
func Stream[Q, A any](f func(ctx context.Context, q Q, send func(A) error) error) Handler {
	return func(ctx context.Context, r *Request, send func(any) error) error {
		var q Q
		if err := r.Decode(&q); err != nil {
			return err
		}
		return f(context.WithValue(ctx, stopKey{}, r.Stopped()), q, func(a A) error { return send(a) })
	}
}

// Endpoint is an endpoint as one runtime serves or calls it.
type Endpoint struct {
	e runtime.Endpoint
}

// Endpoint returns an endpoint by its name, dyn://namespace.component.endpoint. The scheme
// is optional. Namespaces and components consist of lower-case letters, digits, - and _.
func (r *Runtime) Endpoint(name string) (*Endpoint, error) {
	n, err := cluster.ParseEndpoint(name)
	if err != nil {
		return nil, err
	}
	return &Endpoint{r.d.Endpoint(n)}, nil
}

// String returns the name of the endpoint.
func (e *Endpoint) String() string { return e.e.Name().String() }

// ServeOption changes how an endpoint is served.
type ServeOption func(*serving)

type serving struct{ inner []runtime.ServeOption }

// WithCanary probes the endpoint with a request when it was idle for the given time, at
// first at once. The endpoint is healthy while an answer begins within the timeout; see
// [Runtime.Health]. Zero times are 10 s and 3 s.
func WithCanary(body any, idle, timeout time.Duration) ServeOption {
	return func(s *serving) {
		s.inner = append(s.inner, runtime.WithCanary(runtime.Canary{Body: body, Wait: idle, Timeout: timeout}))
	}
}

// Served is an endpoint that this program serves.
type Served struct{ s *runtime.Served }

// Serve answers requests for the endpoint, until Close or the end of the runtime. When it
// returns, others can find it. A runtime serves each endpoint once.
func (e *Endpoint) Serve(ctx context.Context, h Handler, opts ...ServeOption) (*Served, error) {
	if h == nil {
		return nil, fmt.Errorf("serve %s: a handler is required", e)
	}
	var with serving
	for _, o := range opts {
		o(&with)
	}
	s, err := e.e.Serve(ctx, func(ctx context.Context, r *requestplane.Request, send func(any) error) error {
		return remote(h(ctx, &Request{ID: r.ID, Headers: r.Headers, r: r}, send))
	}, with.inner...)
	if err != nil {
		return nil, err
	}
	return &Served{s}, nil
}

// InFlight returns the number of requests that run now.
func (s *Served) InFlight() int { return s.s.InFlight() }

// Close takes the endpoint out of discovery, refuses new requests and waits for the running
// ones until ctx ends. Calling it again continues the wait.
func (s *Served) Close(ctx context.Context) error { return s.s.Close(ctx) }
