package media

import (
	"context"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/fairqueue"
)

// Owner is whose image is encoded.
type Owner struct{ Request, Tenant string }

// line lets images in, so many at a time. Those that wait come in turns: tenants by the time that their images
// took, and the requests of a tenant one image each, so that many large images of one request do not hold up
// the small one of another.
type line struct {
	mu      sync.Mutex
	free    int
	limit   int // of images that wait
	queue   fairqueue.Queue[chan struct{}]
	served  int            // images that were let in
	waiting map[string]int // of a request
}

func newLine(places, limit int) *line {
	return &line{free: places, limit: limit, waiting: map[string]int{}}
}

// enter waits for a place. A tenant may have as many images waiting as are still free for everyone; it fails
// with ErrBusy beyond. Who has a place calls leave.
func (l *line) enter(ctx context.Context, o Owner) error {
	l.mu.Lock()
	if l.free > 0 { // then nobody waits
		l.free--
		l.served++
		l.mu.Unlock()
		return nil
	}
	if mine, _ := l.queue.Of(o.Tenant); mine+1 > l.limit-l.queue.Len() {
		l.mu.Unlock()
		return fmt.Errorf("%w: %d of this client, %d of all", ErrBusy, mine, l.queue.Len())
	}
	// The nth image of a request starts when all have had n more since it came (start-time fair queueing).
	open := make(chan struct{})
	e := l.queue.Insert(o.Tenant, open, 1, float64(l.served+l.waiting[o.Request]))
	l.waiting[o.Request]++
	l.mu.Unlock()
	defer l.waited(o.Request)
	select {
	case <-open:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.queue.Remove(e) {
		l.nextLocked() // it was let in meanwhile
	}
	return context.Cause(ctx)
}

func (l *line) waited(request string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[request]--; l.waiting[request] == 0 {
		delete(l.waiting, request)
	}
}

// leave gives a place back after seconds of work.
func (l *line) leave(o Owner, seconds float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.Charge(o.Tenant, seconds)
	l.nextLocked()
}

// nextLocked gives a place to the next one.
func (l *line) nextLocked() {
	e := l.queue.Next()
	if e == nil {
		l.free++
		return
	}
	l.queue.Take(e)
	l.served++
	close(e.Item)
}

// len is how many wait.
func (l *line) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len()
}
