package frontend

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// What requests may take of memory and processors before anything is generated from
// them. Large ones wait for each other, so that small ones, engines and leases go first.
const (
	// smallBody is how many bytes of a body are read without asking. A request up to
	// that size does not wait for larger ones.
	smallBody = 128 << 10
	// heldBodies is how many of the largest bodies are held in memory at a time.
	heldBodies = 2
	// waitingSmall and waitingLarge bound how many requests wait.
	waitingSmall, waitingLarge = 512, 64
	// slowest is the rate, in bytes a second, below which a large body has to go when
	// others wait for its memory, after the time grace.
	slowest = 1 << 20
	grace   = 2 * time.Second
)

// intake hands out the memory of large bodies, and turns at preparing requests.
type intake struct {
	bodies       *byteBudget
	small, large *turns
}

func newIntake(bodyLimit int64) *intake {
	n := runtime.GOMAXPROCS(0)
	return &intake{
		bodies: newByteBudget(heldBodies * max(bodyLimit, smallBody)),
		small:  newTurns(2*n, waitingSmall),
		large:  newTurns(max(1, n/2), waitingLarge),
	}
}

// turn waits until a request with a body of so many bytes may be prepared. leave must be
// called after that.
func (in *intake) turn(ctx context.Context, bytes int, wait time.Duration) (leave func(), _ *apiError) {
	if bytes > smallBody {
		return in.large.take(ctx, wait)
	}
	return in.small.take(ctx, wait)
}

// busy answers requests for which there was no room in time.
func busy() *apiError {
	e := unavailable("This server is busy with large requests, please retry later.", retryLater)
	return e.withCode("overloaded")
}

// turns let a number of requests go on at a time, in the order in which they came.
type turns struct {
	free    chan struct{}
	waiting atomic.Int32
	most    int32
}

func newTurns(n, waiting int) *turns {
	return &turns{free: make(chan struct{}, n), most: int32(waiting)}
}

func (t *turns) take(ctx context.Context, wait time.Duration) (leave func(), _ *apiError) {
	leave = sync.OnceFunc(func() { <-t.free })
	select {
	case t.free <- struct{}{}:
		return leave, nil
	default:
	}
	defer t.waiting.Add(-1)
	if t.waiting.Add(1) > t.most {
		return nil, busy()
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case t.free <- struct{}{}:
		return leave, nil
	case <-late.C:
		return nil, busy()
	case <-ctx.Done():
		return nil, asAPIError(context.Cause(ctx))
	}
}

// byteBudget bounds the bytes of large bodies, from before they are read until they are
// prepared. Whoever waits is served in order.
type byteBudget struct {
	mu      sync.Mutex
	free    int64
	total   int64
	queue   []*reservation
	uploads map[*reservation]struct{} // that are still being read
}

// reservation is the memory of one body.
type reservation struct {
	b     *byteBudget
	n     int64
	ready chan struct{} // closed when it is granted
	began time.Time
	got   atomic.Int64 // bytes read
	slow  atomic.Bool
	cut   func() // ends the reading
}

func newByteBudget(n int64) *byteBudget {
	return &byteBudget{free: n, total: n, uploads: map[*reservation]struct{}{}}
}

// reserve waits for the memory of n bytes, no longer than wait. cut ends the reading of
// the body, which counts as being read until read or release is called.
func (b *byteBudget) reserve(ctx context.Context, n int64, wait time.Duration, cut func()) (*reservation, *apiError) {
	r := &reservation{b: b, n: min(n, b.total), ready: make(chan struct{}), cut: cut}
	b.mu.Lock()
	if len(b.queue) >= waitingLarge {
		b.mu.Unlock()
		return nil, busy()
	}
	b.queue = append(b.queue, r)
	b.grant()
	b.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	look := time.NewTicker(grace / 4)
	defer look.Stop()
	for {
		select {
		case <-r.ready:
			return r, nil
		default:
		}
		select {
		case <-r.ready:
			return r, nil
		case <-look.C:
			b.cutSlow(time.Now())
		case <-late.C:
			r.release()
			return nil, busy()
		case <-ctx.Done():
			r.release()
			return nil, asAPIError(context.Cause(ctx))
		}
	}
}

// grant serves the queue as far as the bytes go.
func (b *byteBudget) grant() {
	for len(b.queue) > 0 && b.queue[0].n <= b.free {
		r := b.queue[0]
		b.queue = b.queue[1:]
		b.free -= r.n
		r.began = time.Now()
		b.uploads[r] = struct{}{}
		close(r.ready)
	}
}

// cutSlow ends the reading of bodies that come too slowly for those that wait.
func (b *byteBudget) cutSlow(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.uploads {
		took := now.Sub(r.began)
		if took > grace && float64(r.got.Load()) < took.Seconds()*slowest && !r.slow.Swap(true) {
			r.cut()
		}
	}
}

// read says that the body is there and has so many bytes, no more than were reserved.
func (r *reservation) read(n int64) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	delete(r.b.uploads, r)
	r.b.free += r.n - n
	r.n = n
	r.b.grant()
}

// release gives the memory back, or leaves the queue.
func (r *reservation) release() {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == r {
			b.queue = append(b.queue[:i:i], b.queue[i+1:]...)
			b.grant() // a smaller one may have stood behind it
			return
		}
	}
	delete(b.uploads, r)
	b.free += r.n
	r.n = 0
	b.grant()
}

// readBody reads a request body within the limits of size, time and memory. release must
// be called when the body is no longer needed.
func (f *Frontend) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), _ *apiError) {
	release = func() {}
	if r.Body == http.NoBody {
		return nil, release, nil
	}
	if r.ContentLength > f.cfg.BodyLimit {
		return nil, release, f.bodyTooLarge()
	}
	conn := http.NewResponseController(w)
	// The server takes the deadline back when the body has been read.
	_ = conn.SetReadDeadline(time.Now().Add(f.limits.body))
	in := http.MaxBytesReader(w, r.Body, f.cfg.BodyLimit)
	body, err := io.ReadAll(io.LimitReader(in, smallBody+1))
	if err == nil && len(body) > smallBody {
		size := r.ContentLength
		if size < 0 {
			size = f.cfg.BodyLimit
		}
		held, busy := f.intake.bodies.reserve(r.Context(), size, f.limits.intake, func() { _ = conn.SetReadDeadline(time.Now()) })
		if busy != nil {
			return nil, release, busy
		}
		release = sync.OnceFunc(held.release)
		_ = conn.SetReadDeadline(time.Now().Add(f.limits.body))
		body, err = held.readAll(body, in, size)
		if held.slow.Load() && err != nil {
			err = errSlow
		}
	}
	if err == nil {
		return body, release, nil
	}
	release()
	return nil, func() {}, f.bodyError(err, r.ContentLength, len(body))
}

// errSlow is why a body was given up for others.
var errSlow = errors.New("others wait, and the request body arrives too slowly")

// readAll reads the rest of a body that begins with the given bytes.
func (r *reservation) readAll(begin []byte, in io.Reader, size int64) ([]byte, error) {
	body := append(make([]byte, 0, size+1), begin...)
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := in.Read(body[len(body):min(cap(body), len(body)+smallBody)])
		body = body[:len(body)+n]
		r.got.Store(int64(len(body)))
		if errors.Is(err, io.EOF) {
			r.read(min(int64(len(body)), r.n))
			return body, nil
		}
		if err != nil {
			return body, err
		}
	}
}

func (f *Frontend) bodyTooLarge() *apiError {
	return invalid("", "The request body is larger than %d bytes.", f.cfg.BodyLimit).withStatus(http.StatusRequestEntityTooLarge)
}

func (f *Frontend) bodyError(err error, length int64, read int) *apiError {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return f.bodyTooLarge()
	case errors.Is(err, errSlow):
		return invalid("", "The request body arrived more slowly than %d bytes a second while others waited.", slowest).withStatus(http.StatusRequestTimeout)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return invalid("", "The request body did not arrive within %s.", f.limits.body).withStatus(http.StatusRequestTimeout)
	case errors.Is(err, io.ErrUnexpectedEOF) && length > int64(read):
		return clientClosed()
	}
	return invalid("", "The request body could not be read: %v.", err)
}
