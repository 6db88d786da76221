package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// loopback is the baseline for messages and transfers on this machine: plain TCP
// connections over the loopback interface, without a protocol.
type loopback struct {
	near, far []net.Conn
	wg        sync.WaitGroup
}

// newLoopback opens n connections and runs serve at the far end of each until close.
func newLoopback(n int, serve func(net.Conn)) (_ *loopback, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open loopback connections: %w", err)
	}
	defer ln.Close()
	l := &loopback{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for range n {
		near, err := net.DialTimeout("tcp", ln.Addr().String(), 3*time.Second)
		if err != nil {
			return nil, fmt.Errorf("open loopback connections: %w", err)
		}
		l.near = append(l.near, near)
		far, err := ln.Accept() // the connection is in the backlog already
		if err != nil {
			return nil, fmt.Errorf("open loopback connections: %w", err)
		}
		l.far = append(l.far, far)
		l.wg.Go(func() { serve(far) })
	}
	return l, nil
}

// close ends the connections and waits for the far ends.
func (l *loopback) close() {
	for _, c := range append(l.near, l.far...) {
		_ = c.Close() // nothing is in flight
	}
	l.wg.Wait()
}

// pingSize is the payload of a plain round trip: about a small message.
const pingSize = 64

// newPingLoopback opens one connection whose far end echoes its input.
func newPingLoopback() (*loopback, error) {
	return newLoopback(1, func(c net.Conn) {
		b := make([]byte, pingSize)
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

// pings measures n round trips.
func (l *loopback) pings(n int) ([]time.Duration, error) {
	b := make([]byte, pingSize)
	c := l.near[0]
	return repeat(n, func() error {
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	})
}

// sparsePings measures n round trips with pauses between them, so that both ends sleep.
func (l *loopback) sparsePings(n int) ([]time.Duration, error) {
	out := make([]time.Duration, 0, n)
	for range n {
		time.Sleep(time.Millisecond)
		d, err := l.pings(1)
		if err != nil {
			return nil, err
		}
		out = append(out, d...)
	}
	return out, nil
}

// newCopyLoopback opens connections whose far ends repeatedly read into parts of dst, and
// send a byte whenever a part is full.
func newCopyLoopback(conns int, dst []byte) (*loopback, error) {
	parts := make(chan []byte, conns)
	for i := range conns {
		parts <- part(dst, i, conns)
	}
	return newLoopback(conns, func(c net.Conn) {
		mine := <-parts
		for {
			if _, err := io.ReadFull(c, mine); err != nil {
				return
			}
			if _, err := c.Write([]byte{1}); err != nil {
				return
			}
		}
	})
}

// part returns the i-th of n equal parts.
func part(b []byte, i, n int) []byte { return b[i*len(b)/n : (i+1)*len(b)/n] }

// copyFrom sends src over all connections at once and waits until it has arrived. src
// must be as long as the destination.
func (l *loopback) copyFrom(src []byte) error {
	errs := make([]error, len(l.near))
	var wg sync.WaitGroup
	for i, c := range l.near {
		wg.Go(func() {
			p := part(src, i, len(l.near))
			const chunk = 1 << 20
			for len(p) > 0 {
				n, err := c.Write(p[:min(chunk, len(p))])
				if err != nil {
					errs[i] = err
					return
				}
				p = p[n:]
			}
			_, errs[i] = io.ReadFull(c, make([]byte, 1))
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// repeat runs f n times and returns each duration.
func repeat(n int, f func() error) ([]time.Duration, error) {
	out := make([]time.Duration, n)
	for i := range out {
		begin := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		out[i] = time.Since(begin)
	}
	return out, nil
}

// latencyCase is a case whose sample is the distribution of n durations.
func latencyCase(name string, unit time.Duration, measure func(context.Context) ([]time.Duration, error)) Case {
	return Case{name, func(ctx context.Context) (Sample, error) {
		d, err := measure(ctx)
		if err != nil {
			return nil, err
		}
		s := Sample{}
		s.tail(keyLatency, d, unit)
		return s, nil
	}}
}

const keyLatency = "latency"

// latencyColumns returns the columns of a latencyCase.
func latencyColumns(unit string) []Column {
	return []Column{
		{keyLatency + "_p50", "p50 " + unit, ""},
		{keyLatency + "_p95", "p95 " + unit, ""},
		{keyLatency + "_p99", "p99 " + unit, ""},
	}
}
