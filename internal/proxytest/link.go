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
	// slice is the time in which a limited connection passes one read on.
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
		l.p.mu.Lock()
		limit, delay := l.p.perSlice(), l.p.delay
		l.p.mu.Unlock()
		buf := make([]byte, limit)
		n, err := from.Read(buf)
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

// perSlice returns the bytes that one direction may pass in a slice of time.
func (p *Proxy) perSlice() int {
	if p.rate == 0 {
		return maxRead
	}
	return max(1, min(maxRead, int(int64(p.rate)*int64(slice)/int64(time.Second))))
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
	rate, chunk := l.p.rate, l.p.chunk
	if at := l.p.flip - 1 - passed.Load(); at >= 0 && at < int64(len(p.data)) {
		p.data[at] ^= 0x10
	}
	passed.Add(int64(len(p.data)))
	l.p.mu.Unlock()
	if chunk == 0 {
		chunk = maxRead
	}
	for part := range slices.Chunk(p.data, chunk) {
		if _, err := to.Write(part); err != nil {
			return false
		}
	}
	if rate > 0 && !l.wait(time.Duration(len(p.data))*time.Second/time.Duration(rate)) {
		return false
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
