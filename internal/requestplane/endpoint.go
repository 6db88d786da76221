package requestplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// registry holds the endpoints of one server and counts their running requests.
type registry struct {
	log     *slog.Logger
	limit   int // running requests of all endpoints together
	mu      sync.Mutex
	paths   map[string]*endpoint
	running int
	closed  bool
}

// endpoint is one path and its handler. Fields below the handler are guarded by
// the registry's mutex.
type endpoint struct {
	path     string
	handler  Handler
	running  int
	draining bool
	idle     chan struct{} // closed when draining and running is 0
}

func newRegistry(limit int, log *slog.Logger) *registry {
	return &registry{log: log, limit: limit, paths: make(map[string]*endpoint)}
}

func (r *registry) handle(path string, h Handler) (remove func(context.Context) error, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("handle %s: %w", path, ErrServerClosed)
	}
	if path == "" || h == nil {
		return nil, fmt.Errorf("handle %q: path and handler are required", path)
	}
	if _, ok := r.paths[path]; ok {
		return nil, fmt.Errorf("handle %s: %w", path, ErrEndpointExists)
	}
	e := &endpoint{path: path, handler: h, idle: make(chan struct{})}
	r.paths[path] = e
	return func(ctx context.Context) error { return r.remove(ctx, e) }, nil
}

func (r *registry) remove(ctx context.Context, e *endpoint) error {
	r.mu.Lock()
	if !e.draining {
		e.draining = true
		if e.running == 0 {
			close(e.idle)
		}
	}
	r.mu.Unlock()

	select {
	case <-e.idle:
	case <-ctx.Done():
		r.mu.Lock()
		n := e.running
		r.mu.Unlock()
		if n > 0 {
			return fmt.Errorf("remove %s: %d requests running: %w", e.path, n, context.Cause(ctx))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths[e.path] == e {
		delete(r.paths, e.path)
	}
	return nil
}

// reserve reserves a place among the running requests of all endpoints. It returns false
// when the server is at its limit.
func (r *registry) reserve() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running >= r.limit {
		return false
	}
	r.running++
	return true
}

func (r *registry) release() {
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
}

// enter admits a request to its endpoint. The caller calls leave when the request ends.
func (r *registry) enter(path string) (*endpoint, *RemoteError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.paths[path]
	switch {
	case e == nil:
		return nil, &RemoteError{Kind: KindUnknownEndpoint, Message: path}
	case e.draining:
		return nil, &RemoteError{Kind: KindDraining, Message: path}
	}
	e.running++
	return e, nil
}

func (r *registry) leave(e *endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.running--
	if e.draining && e.running == 0 {
		close(e.idle)
	}
}

func (r *registry) inFlight(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.paths[path]; e != nil {
		return e.running
	}
	return 0
}

// overloaded is the error for requests beyond the limit of running requests.
func (r *registry) overloaded() *RemoteError {
	return &RemoteError{Kind: KindOverloaded, Message: fmt.Sprintf("%d requests running", r.limit)}
}

// close refuses new endpoints. It reports whether this was the first call.
func (r *registry) close() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.closed
	r.closed = true
	return first
}

// run calls the handler and converts its outcome into the error for the caller; nil means
// success. A panic fails one request, not the process.
func (r *registry) run(ctx context.Context, e *endpoint, req *Request, send func(any) error) (failure *RemoteError) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("handler panicked", "path", e.path, "request", req.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			failure = &RemoteError{Kind: KindInternal, Message: "handler panicked"}
		}
	}()
	return remoteError(ctx, e.handler(ctx, req, send))
}

// remoteError classifies a handler's error.
func remoteError(ctx context.Context, err error) *RemoteError {
	if err == nil {
		return nil
	}
	var re *RemoteError
	if errors.As(err, &re) {
		// An error that the handler got from its own call to another server must not look
		// like a refusal of this one.
		if re.Kind == KindUnknownEndpoint || re.Kind == KindDraining {
			return &RemoteError{Kind: KindUnavailable, Message: err.Error()}
		}
		return re
	}
	kind := KindInternal
	switch {
	case errors.Is(context.Cause(ctx), ErrTimeout) && (errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded)):
		kind = KindTimeout
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))):
		kind = KindCancelled
	case errors.Is(err, ErrOverloaded):
		kind = KindOverloaded
	case errors.Is(err, ErrCannotConnect), errors.Is(err, ErrDisconnected):
		kind = KindUnavailable // the handler lost its own peer
	}
	return &RemoteError{Kind: kind, Message: err.Error()}
}
