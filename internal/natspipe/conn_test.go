package natspipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/net/nettest"
)

// A pipe is a connection as others are.
func TestConnConforms(t *testing.T) {
	s := startServer(t, server.Options{})
	ln, err := s.hub(Config{}).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := s.hub(Config{})
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		dialed, accepted := connect(t, from, ln)
		return dialed, accepted, func() { dialed.Close(); accepted.Close() }, nil
	})
}

// Bytes arrive whole and in order both ways at once, whatever the sizes of writes, and if the
// server takes small messages only.
func TestConnCarriesBytes(t *testing.T) {
	for name, opts := range map[string]server.Options{"": {}, "small messages": {MaxPayload: 700}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, startServer(t, opts), Config{})
			const total = 4 << 20
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			results := make(chan error, 4)
			for i, c := range []*Conn{a, b} {
				go func() { results <- write(c, rand.New(rand.NewPCG(seed, uint64(i))), total) }()
				go func() { results <- expect(c, rand.New(rand.NewPCG(seed, uint64(1-i))), total) }()
			}
			for range 4 {
				if err := <-results; err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []*Conn{a, b} {
				if c.window < 2*baseWindow {
					t.Errorf("a window of %d bytes after %d: it does not grow", c.window, total)
				}
			}
		})
	}
}

// write sends random bytes in pieces of random sizes, and then the end.
func write(c *Conn, rnd *rand.Rand, total int) error {
	sizes := rand.New(rand.NewPCG(1, 2))
	for total > 0 {
		p := make([]byte, min(total, 1+sizes.IntN(200_000)))
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		if n, err := c.Write(p); err != nil || n != len(p) {
			return errors.Join(err, errors.New("short write"))
		}
		total -= len(p)
	}
	return c.CloseWrite()
}

// expect reads what write sends with the same source.
func expect(c *Conn, rnd *rand.Rand, total int) error {
	got, err := io.ReadAll(c)
	if err != nil || len(got) != total {
		return errors.Join(err, errors.New("not all has arrived"))
	}
	for i := range got {
		if got[i] != byte(rnd.Uint32()) {
			return errors.New("wrong bytes")
		}
	}
	return nil
}

// Who closes tells the peer, which still reads what was written before.
func TestConnClose(t *testing.T) {
	a, b := pair(t, startServer(t, server.Options{}), Config{Beat: time.Hour, Missed: 1})
	if _, err := a.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	until(t, "the peer knows", func() bool { _, err := b.Write([]byte("x")); return errors.Is(err, ErrBroken) })
	for range 5 { // nobody is missed who has left
		b.hub.beat()
	}
	got, err := io.ReadAll(b)
	if string(got) != "last words" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	for _, f := range []func([]byte) (int, error){a.Read, a.Write} {
		if _, err := f(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A peer that does not read lets nobody write more than the window, which is given back with
// the pipe, and others are not held up.
func TestConnSlowReader(t *testing.T) {
	s := startServer(t, server.Options{})
	ln, err := s.hub(Config{}).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := s.hub(Config{})
	flood := make([]byte, 4<<20)
	var slow []*Conn
	for range 50 {
		a, b := connect(t, from, ln)
		a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := a.Write(flood); !errors.Is(err, os.ErrDeadlineExceeded) || n != baseWindow {
			t.Fatalf("%d bytes written, %v, want %d", n, err, baseWindow)
		}
		slow = append(slow, a, b)
	}
	a, b := connect(t, from, ln)
	go func() { a.Write(flood); a.CloseWrite() }()
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, flood) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := s.SlowConsumers(); n != 0 {
		t.Errorf("%d slow consumers", n)
	}
	for _, c := range append(slow, a, b) {
		c.Close()
	}
	for _, h := range []*Hub{ln.hub, from} {
		if h.extra != extraWindow || len(h.pipes) != 0 {
			t.Errorf("%d bytes and %d pipes are left", h.extra, len(h.pipes))
		}
	}
}
