package requestplane

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// HTTP has nothing that a caller could send after its request. A stop is a request of its own,
// on the same connection, which names the one to stop by its number there.
const (
	headerCall = "X-Dynctl-Call"
	stopRoot   = "/v1/stop/"
)

// httpCalls are the running requests of a connection that can be stopped.
type httpCalls struct {
	mu      sync.Mutex
	running map[uint64]chan struct{} // nil when closed
	early   map[uint64]time.Time     // stops that overtook their request, or came after its end
}

// begin adds a request and returns the channel for its handler.
func (c *httpCalls) begin(number uint64) <-chan struct{} {
	stop := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[uint64]chan struct{})
	}
	if _, early := c.early[number]; early {
		delete(c.early, number)
		close(stop)
		return stop
	}
	c.running[number] = stop
	return stop
}

func (c *httpCalls) end(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, number)
}

// stop closes the channel of a request. If there is none, it may begin yet, within the time
// for a handshake; of more such stops than requests may wait on a connection, the last ones
// are lost.
func (c *httpCalls) stop(number uint64, patience time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stop, ok := c.running[number]; ok {
		if stop != nil {
			close(stop)
			c.running[number] = nil
		}
		return
	}
	now := time.Now()
	if c.early == nil {
		c.early = make(map[uint64]time.Time)
	}
	for n, at := range c.early {
		if now.Sub(at) > patience {
			delete(c.early, n)
		}
	}
	if len(c.early) < maxOpening {
		c.early[number] = now
	}
}

// stopped serves a request to stop another one.
func (s *HTTPServer) stopped(wire *httpWire, w http.ResponseWriter, r *http.Request) {
	number, err := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, stopRoot), 10, 64)
	if err != nil || !wire.proved {
		http.Error(w, "endpoints are at "+cluster.RPCRoot, http.StatusNotFound)
		return
	}
	wire.calls.stop(number, s.cfg.HandshakeTimeout)
	w.WriteHeader(http.StatusNoContent)
}

// stoppable returns the channel that a stop of the request closes, and what ends that. Requests
// of programs that are no nodes have no number.
func (c *httpCall) stoppable() (stop <-chan struct{}, end func()) {
	number, err := strconv.ParseUint(c.r.Header.Get(headerCall), 10, 64)
	if err != nil || !c.wire.proved {
		return nil, func() {}
	}
	return c.wire.calls.begin(number), func() { c.wire.calls.end(number) }
}

// stop asks the server to stop a request. It returns with the answer, or when ctx ends.
func (l *httpLink) stop(ctx context.Context, number uint64) {
	u := *l.base
	u.Path = stopRoot + strconv.FormatUint(number, 10)
	req := (&http.Request{Method: http.MethodPost, URL: &u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	if resp, err := l.conn.RoundTrip(req); err == nil { // else the request itself ends soon
		_ = resp.Body.Close()
	}
}
