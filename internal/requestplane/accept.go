package requestplane

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	acceptPause  = 5 * time.Millisecond // first wait after a failed accept
	acceptPauses = time.Second          // longest
)

// Listen starts a server of a plane.
func Listen(plane cluster.Plane, cfg ServerConfig) (Server, error) {
	switch plane {
	case cluster.PlaneHTTP:
		return ListenHTTP(cfg)
	case cluster.PlaneNATS:
		return ListenNATS(cfg)
	}
	return ListenTCP(cfg)
}

// acceptAll calls serve for each connection until the listener is closed or ctx ends.
func acceptAll(ctx context.Context, ln net.Listener, log *slog.Logger, serve func(net.Conn)) {
	pause := acceptPause
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause = acceptPause
			serve(conn)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Most likely the process is out of file descriptors; some will be freed.
		log.Warn("accept failed", "err", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, acceptPauses)
	}
}

// requestGroup counts running requests. Unlike a sync.WaitGroup, it can be waited for
// with a time limit.
type requestGroup struct {
	mu     sync.Mutex
	n      int
	closed bool
	zero   chan struct{} // made by wait, closed when n is 0
}

func (g *requestGroup) add() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *requestGroup) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.zero)
	}
}

// wait refuses new requests and waits until none is left or limit has passed. It returns
// the number that is left.
func (g *requestGroup) wait(limit time.Duration) int {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.zero = make(chan struct{})
		if g.n == 0 {
			close(g.zero)
		}
	}
	g.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.zero:
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
