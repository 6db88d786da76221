// Package proxytest has a TCP proxy that breaks what it carries, for tests of clients: it
// delays, limits, holds, spoils and resets connections, or refuses them, and neither end
// notices who did it. Tests alone import it.
package proxytest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy carries each connection that it accepts to its target. All methods are safe for
// concurrent use and take effect at once, for open connections, too.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	accepted atomic.Int64
	sent     atomic.Int64 // bytes that have left towards the target
	returned atomic.Int64 // and towards clients

	mu     sync.Mutex
	target string
	links  []*link // open connections, oldest first
	down   bool
	held   chan struct{} // not nil while bytes are held: closed when they go on
	delay  time.Duration
	rate   int // bytes per second
	chunk  int // bytes per write
	flip   int64
}

// New returns a proxy in front of target, a host and port. It ends with the test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		p.work.Wait()
	})
	return p
}

// Addr returns the host and port of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target sets where new connections go.
func (p *Proxy) Target(addr string) { p.set(func() { p.target = addr }) }

// Cut resets all connections, and new ones until [Proxy.Heal].
func (p *Proxy) Cut() {
	p.set(func() { p.down = true })
	p.Reset()
}

// Freeze holds all bytes, and the ends of connections, until [Proxy.Heal]: a half-open
// connection. New connections are accepted, and carry nothing.
func (p *Proxy) Freeze() {
	p.set(func() {
		if p.held == nil {
			p.held = make(chan struct{})
		}
	})
}

// Heal undoes Cut and Freeze. What was held arrives.
func (p *Proxy) Heal() {
	p.set(func() {
		p.down = false
		if p.held != nil {
			close(p.held)
			p.held = nil
		}
	})
}

// Reset resets the connections that are open now.
func (p *Proxy) Reset() {
	p.mu.Lock()
	open := p.links
	p.links = nil
	p.mu.Unlock()
	for _, l := range open {
		l.reset()
	}
}

// ResetOldest resets the oldest open connection, if there is one.
func (p *Proxy) ResetOldest() {
	p.mu.Lock()
	var oldest *link
	if len(p.links) > 0 {
		oldest, p.links = p.links[0], p.links[1:]
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.reset()
	}
}

// Delay makes bytes take this long, each way.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// Bandwidth limits each connection and direction, in bytes per second; 0 is no limit.
func (p *Proxy) Bandwidth(bytesPerSecond int) { p.set(func() { p.rate = bytesPerSecond }) }

// Chunk passes bytes on in writes of this size; 0 is as they come.
func (p *Proxy) Chunk(bytes int) { p.set(func() { p.chunk = bytes }) }

// Flip changes one bit of the n-th byte of each direction, counted from 1 over all
// connections; 0 changes none.
func (p *Proxy) Flip(n int64) { p.set(func() { p.flip = n }) }

// Accepted returns the number of connections so far.
func (p *Proxy) Accepted() int { return int(p.accepted.Load()) }

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Sent returns the number of bytes that were passed on to the target.
func (p *Proxy) Sent() int64 { return p.sent.Load() }

func (p *Proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Proxy) accept() {
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		up, err := net.Dial("tcp", target)
		if err != nil {
			_, _ = down.(*net.TCPConn).SetLinger(0), down.Close()
			continue
		}
		l := &link{p: p, ends: [2]*net.TCPConn{down.(*net.TCPConn), up.(*net.TCPConn)}, broken: make(chan struct{})}
		p.mu.Lock()
		refused := p.down
		if !refused {
			p.links = append(p.links, l)
		}
		p.mu.Unlock()
		if refused {
			l.reset()
			continue
		}
		p.work.Go(l.carry)
	}
}
