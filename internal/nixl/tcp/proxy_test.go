package tcp

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy carries connections to a target and can be told to misbehave.
type proxy struct {
	ln net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex
	target string
	rate   int // bytes per millisecond, connection and direction; 0 = no limit
	paused chan struct{}
	conns  []net.Conn
	passed int64 // bytes towards the target
	back   int64 // bytes from the target
	flip   int64 // the byte with this number is changed, in both directions; 0 = none
	closed bool
}

func newProxy(t testing.TB) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// dial replaces Options.dial.
func (p *proxy) dial(ctx context.Context, addr string) (net.Conn, error) {
	p.mu.Lock()
	p.target = addr
	p.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.ln.Addr().String())
}

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		out, err := net.Dial("tcp", target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		if p.closed {
			_, _ = in.Close(), out.Close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(out, in, true) })
		p.wg.Go(func() { p.pipe(in, out, false) })
	}
}

func (p *proxy) pipe(dst, src net.Conn, toTarget bool) {
	defer func() { _, _ = dst.Close(), src.Close() }()
	buf := make([]byte, 32<<10)
	for {
		p.mu.Lock()
		rate, paused := p.rate, p.paused
		p.mu.Unlock()
		if paused != nil {
			<-paused
			continue
		}
		limit := len(buf)
		if rate > 0 {
			limit = min(limit, rate)
			time.Sleep(time.Millisecond)
		}
		n, err := src.Read(buf[:limit])
		if n > 0 {
			p.spoil(buf[:n], toTarget)
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// spoil counts bytes and changes the one that is to be changed.
func (p *proxy) spoil(b []byte, toTarget bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := &p.back
	if toTarget {
		count = &p.passed
	}
	if at := p.flip - *count - 1; at >= 0 && at < int64(len(b)) {
		b[at] ^= 0x10
	}
	*count += int64(len(b))
}

func (p *proxy) throttle(bytesPerMillisecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerMillisecond
}

// pause stops all bytes, in both directions, as a network that swallows them.
func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// cut breaks the first connection that exists.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) > 0 {
		_ = p.conns[0].Close()
	}
}

func (p *proxy) count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed
}

func (p *proxy) close() {
	p.resume()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	_ = p.ln.Close()
	p.wg.Wait()
}
