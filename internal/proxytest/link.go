package proxytest

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxRead = 32 << 10
	// maxAhead bounds the reads under way in one direction while bytes are delayed.
	maxAhead = 256
	// slice is the time in which a limited connection passes one write on.
	slice = 5 * time.Millisecond
)

// link is one connection of a client with its connection to the target.
type link struct {
	p      *Proxy
	ends   [2]*net.TCPConn // client, target
	once   sync.Once
	broken chan struct{} // closed by reset
}

// piece is what one read returned: bytes, or the end of the direction.
type piece struct {
	data []byte
	err  error
	due  time.Time
}

// reset breaks both connections.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.broken)
		for _, c := range l.ends {
			_ = c.SetLinger(0) // or it is closed already
			_ = c.Close()
		}
	})
}

// carry passes both directions on until both have ended, or one is broken.
func (l *link) carry() {
	var both sync.WaitGroup
	both.Go(func() { l.direction(l.ends[0], l.ends[1], &l.p.sent) })
	both.Go(func() { l.direction(l.ends[1], l.ends[0], &l.p.returned) })
	both.Wait()
	l.once.Do(func() {
		close(l.broken)
		_, _ = l.ends[0].Close(), l.ends[1].Close()
	})
	l.p.set(func() {
		l.p.links = slices.DeleteFunc(l.p.links, func(o *link) bool { return o == l })
	})
}

func (l *link) direction(from, to *net.TCPConn, passed *atomic.Int64) {
	under := make(chan piece, maxAhead)
	var waiting sync.WaitGroup // pieces that are not passed on yet
	var writer sync.WaitGroup
	writer.Go(func() {
		for p := range under {
			if !l.pass(to, p, passed) {
				l.reset()
			}
			waiting.Done()
		}
	})
	defer writer.Wait()
	defer close(under)
	for {
		buf := make([]byte, maxRead)
		n, err := from.Read(buf)
		l.p.mu.Lock()
		delay := l.p.delay
		l.p.mu.Unlock()
		waiting.Add(1)
		under <- piece{buf[:n], err, time.Now().Add(delay)}
		if err != nil {
			return
		}
		if delay == 0 {
			waiting.Wait() // nothing piles up here, so that the sender feels the receiver
		}
	}
}

// pace returns how many bytes one direction may pass at once, and how long it then rests.
func (p *Proxy) pace(left int) (bytes int, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes = left
	if p.chunk > 0 {
		bytes = min(bytes, p.chunk)
	}
	if p.rate > 0 {
		bytes = max(1, min(bytes, int(int64(p.rate)*int64(slice)/int64(time.Second))))
		rest = time.Duration(bytes) * time.Second / time.Duration(p.rate)
	}
	return bytes, rest
}

// pass waits until a piece may arrive, and writes it. It returns false when the link is broken.
func (l *link) pass(to *net.TCPConn, p piece, passed *atomic.Int64) bool {
	if !l.wait(time.Until(p.due)) {
		return false
	}
	l.p.mu.Lock()
	held := l.p.held
	l.p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-l.broken:
			return false
		}
	}
	l.p.mu.Lock()
	if at := l.p.flip - 1 - passed.Load(); at >= 0 && at < int64(len(p.data)) {
		p.data[at] ^= 0x10
	}
	l.p.mu.Unlock()
	for len(p.data) > 0 {
		n, rest := l.p.pace(len(p.data))
		passed.Add(int64(n))
		if _, err := to.Write(p.data[:n]); err != nil || !l.wait(rest) {
			return false
		}
		p.data = p.data[n:]
	}
	switch {
	case errors.Is(p.err, io.EOF):
		_ = to.CloseWrite() // or it is closed already
	case p.err != nil:
		return false
	}
	return true
}

// wait returns false when the link is broken first.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.broken:
		return false
	}
}
