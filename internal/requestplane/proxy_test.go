package requestplane_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between a client and a server and can break what it carries.
type proxy struct {
	ln     net.Listener
	target string
	at     func(hostport string) string // the address of a server there; nil for its hostport

	chunk    atomic.Int64 // bytes per write, 0 for what comes
	accepted atomic.Int64 // connections so far

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	frozen chan struct{} // not nil: wait for it before passing anything on
	work   sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, conns: make(map[net.Conn]struct{})}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.thaw()
		p.cut()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string {
	if p.at != nil {
		return p.at(p.ln.Addr().String())
	}
	return p.ln.Addr().String()
}

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.work.Go(func() { p.carry(in, out) })
		p.work.Go(func() { p.carry(out, in) })
	}
}

func (p *proxy) carry(from, to net.Conn) {
	defer func() {
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
		from.Close()
		to.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		for b := buf[:n]; len(b) > 0; {
			size := len(b)
			if c := int(p.chunk.Load()); c > 0 {
				size = min(c, size)
			}
			if _, err := to.Write(b[:size]); err != nil {
				return
			}
			b = b[size:]
		}
		if err != nil {
			if err == io.EOF {
				if tc, ok := to.(*net.TCPConn); ok {
					tc.CloseWrite()
				}
			}
			return
		}
	}
}

// freeze stops passing bytes on, in both directions, with the connections open.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tc, ok := c.(*net.TCPConn); ok {
			tc.SetLinger(0)
		}
		c.Close()
	}
}

func (p *proxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

const patience = 30 * time.Second

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
