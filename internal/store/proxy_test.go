package store_test

import (
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between a client and a server and can cut or freeze the connection, or delay
// what passes, without the server noticing.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	thaw   *sync.Cond
	conns  map[net.Conn]struct{}
	cut    bool
	frozen bool
	delay  time.Duration
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	p.thaw = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.set(true, false)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set cuts all connections and refuses new ones, or freezes the bytes in them.
func (p *proxy) set(cut, frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.frozen = cut, frozen
	if cut {
		for c := range p.conns {
			c.Close()
		}
	}
	p.thaw.Broadcast()
}

// slow delays all that passes, in each direction.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *proxy) accept() {
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.target)
		if err != nil || !p.track(down, up) {
			down.Close()
			if up != nil {
				up.Close()
			}
			continue
		}
		p.wg.Go(func() { p.pipe(up, down) })
		p.wg.Go(func() { p.pipe(down, up) })
	}
}

func (p *proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *proxy) pipe(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.frozen {
			p.thaw.Wait()
		}
		delay := p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}
