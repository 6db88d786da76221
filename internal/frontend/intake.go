package frontend

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/fairqueue"
)

// Limits of memory and processor time for requests before generation. Large requests wait
// for each other, so that small ones, engines and leases go first.
const (
	// smallBody bounds the bytes of a body that are read without a reservation. Requests
	// up to that size do not wait for larger ones.
	smallBody = 128 << 10
	// heldBodies is the number of bodies of the largest size that may be in memory at a
	// time.
	heldBodies = 2
	// waitingSmall and waitingLarge bound how many requests wait.
	waitingSmall, waitingLarge = 512, 64
	// slowest is a rate in bytes a second. After the time grace, a large body that
	// arrives more slowly is given up if others wait for its memory.
	slowest = 1 << 20
	grace   = 2 * time.Second
)

// intake allots memory to large bodies, and turns to requests that are prepared.
type intake struct {
	bodies       *budget // bytes, from before a body is read until it is prepared
	small, large *budget // turns, one for each request
}

func newIntake(bodyLimit int64) *intake {
	n := int64(runtime.GOMAXPROCS(0))
	return &intake{
		bodies: newBudget(heldBodies*max(bodyLimit, smallBody), waitingLarge),
		small:  newBudget(2*n, waitingSmall),
		large:  newBudget(max(1, n/2), waitingLarge),
	}
}

// turn waits until a request with a body of the given size may be prepared. The caller
// must call leave afterwards.
func (in *intake) turn(ctx context.Context, tenant string, bytes int, wait time.Duration) (leave func(), _ *apiError) {
	turns := in.small
	if bytes > smallBody {
		turns = in.large
	}
	r, bad := turns.reserve(ctx, tenant, 1, wait, nil)
	if bad != nil {
		return nil, bad
	}
	return r.release, nil
}

// busy answers requests that got no room in time.
func busy() *apiError {
	e := unavailable("This server is busy with large requests, please retry later.", retryLater)
	return e.withCode("overloaded")
}

// budget bounds how many units of a resource requests hold at a time. Waiting tenants
// take turns; the requests of one tenant are served in order of arrival.
type budget struct {
	total int64
	most  int // of waiting requests

	mu    sync.Mutex
	free  int64
	queue fairqueue.Queue[*reservation]
	// uploads holds the reservations of bodies that are still being read.
	uploads map[*reservation]struct{}
}

// reservation is the share of a budget that one request holds or waits for.
type reservation struct {
	b       *budget
	n       int64 // units
	tenant  string
	entry   *fairqueue.Entry[*reservation]
	ready   chan struct{} // closed when it is granted, or refused
	refused bool          // in favor of a tenant with fewer waiting
	began   time.Time
	got     atomic.Int64 // bytes read
	slow    atomic.Bool
	cut     func() // ends the reading of a body; nil for turns
}

func newBudget(n int64, waiting int) *budget {
	return &budget{free: n, total: n, most: waiting, uploads: map[*reservation]struct{}{}}
}

// reserve waits for n units, no longer than wait. For a body, cut must end its reading;
// the budget may call it until read or release is called. The caller must release what it
// was granted.
func (b *budget) reserve(ctx context.Context, tenant string, n int64, wait time.Duration, cut func()) (*reservation, *apiError) {
	r := &reservation{b: b, n: min(n, b.total), tenant: tenant, ready: make(chan struct{}), cut: cut}
	if !b.enqueue(r) {
		return nil, busy()
	}
	select {
	case <-r.ready: // as most often
		return r.granted()
	default:
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	look := time.NewTicker(grace / 4)
	defer look.Stop()
	for {
		select {
		case <-r.ready:
			return r.granted()
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

// granted returns a reservation that is ready, unless it was refused.
func (r *reservation) granted() (*reservation, *apiError) {
	if r.refused {
		return nil, busy()
	}
	return r, nil
}

// enqueue queues a reservation, or grants it at once. If too many wait, it refuses the
// newest of the tenant that has most waiting.
func (b *budget) enqueue(r *reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue.Len() >= b.most {
		last, n := b.queue.Longest()
		if mine, _ := b.queue.Of(r.tenant); mine+1 >= n {
			return false
		}
		b.queue.Remove(last)
		last.Item.refused = true
		close(last.Item.ready)
	}
	r.entry = b.queue.Push(r.tenant, r, 0)
	b.grant()
	return true
}

// grant serves the queue as long as there are units.
func (b *budget) grant() {
	for e := b.queue.Next(); e != nil && e.Item.n <= b.free; e = b.queue.Next() {
		r := e.Item
		b.queue.Take(e)
		b.queue.Charge(r.tenant, float64(r.n))
		b.free -= r.n
		r.began = time.Now()
		if r.cut != nil {
			b.uploads[r] = struct{}{}
		}
		close(r.ready)
	}
}

// cutSlow ends the reading of bodies that arrive too slowly while others wait.
func (b *budget) cutSlow(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.uploads {
		took := now.Sub(r.began)
		if took > grace && float64(r.got.Load()) < took.Seconds()*slowest && !r.slow.Swap(true) {
			r.cut()
		}
	}
}

// read declares that the body has been read and returns units that it did not need.
func (r *reservation) read(n int64) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	delete(r.b.uploads, r)
	r.b.free += r.n - n
	r.n = n
	r.b.grant()
}

// release gives the units back, or leaves the queue. Further calls do nothing.
func (r *reservation) release() {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.queue.Remove(r.entry) && !r.refused { // it was granted
		delete(b.uploads, r)
		b.free += r.n
	}
	r.n = 0
	b.grant() // smaller requests may have waited behind it
}

// readBody reads a request body within the limits of size, time and memory. The caller
// must call release when it no longer needs the body.
func (f *Frontend) readBody(w http.ResponseWriter, r *http.Request, tenant string) (body []byte, release func(), _ *apiError) {
	release = func() {}
	if r.Body == http.NoBody {
		return nil, release, nil
	}
	if r.ContentLength > f.cfg.BodyLimit {
		return nil, release, f.bodyTooLarge()
	}
	conn := http.NewResponseController(w)
	// The server resets the deadline when the body has been read.
	_ = conn.SetReadDeadline(time.Now().Add(f.limits.body))
	size := r.ContentLength
	in, plain, err := decoded(r.Header.Values("Content-Encoding"), http.MaxBytesReader(w, r.Body, f.cfg.BodyLimit))
	switch {
	case errors.Is(err, errEncoding):
		w.Header().Set("Accept-Encoding", "gzip, deflate") // RFC 9110, 12.5.3
		return nil, release, invalid("", "A request body with the content encoding '%s' is not supported: send it as it is, or with gzip or deflate.",
			strings.Join(r.Header.Values("Content-Encoding"), ", ")).withStatus(http.StatusUnsupportedMediaType)
	case !plain && err == nil:
		in = http.MaxBytesReader(w, io.NopCloser(in), f.cfg.BodyLimit)
	}
	if size < 0 || !plain {
		size = f.cfg.BodyLimit
	}
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(in, smallBody+1))
	}
	if err == nil && len(body) > smallBody {
		held, busy := f.intake.bodies.reserve(r.Context(), tenant, size, f.limits.intake, func() { _ = conn.SetReadDeadline(time.Now()) })
		if busy != nil {
			return nil, release, busy
		}
		release = held.release
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
	length := r.ContentLength
	if !plain {
		length = -1 // of something else than body
	}
	return nil, func() {}, f.bodyError(err, length, len(body))
}

// errEncoding is returned for the encodings of a body that are not known.
var errEncoding = errors.New("content encoding is not supported")

// decoded returns a body without its content encodings, which are listed in the order in
// which they were applied, and whether it had none. It may read the beginning of the body.
func decoded(encodings []string, body io.ReadCloser) (in io.ReadCloser, plain bool, err error) {
	var names []string
	for _, name := range strings.Split(strings.Join(encodings, ","), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return body, true, nil
	case len(names) > 1: // nobody does that but to cost work
		return nil, false, errEncoding
	}
	switch names[0] {
	case "gzip", "x-gzip":
		in, err = gzip.NewReader(body)
	case "deflate":
		in, err = zlib.NewReader(body)
	default:
		err = errEncoding
	}
	return in, false, err
}

// errSlow is the cause with which a body is given up for others.
var errSlow = errors.New("others wait, and the request body arrives too slowly")

// readAll reads the rest of a body after the bytes in begin.
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
