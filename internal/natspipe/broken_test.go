package natspipe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natspipe/natspipetest"
)

// Whatever else arrives on the subject of a pipe ends it on both sides, and Read returns what
// was written before, and nothing else.
func TestForeignMessages(t *testing.T) {
	s := startServer(t, server.Options{})
	ln, err := s.hub(lively).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from, raw := s.hub(lively), natspipetest.Bus(t, s.URL())
	<-raw.Online()
	message := func(k kind, number, allowed uint64, payload string) []byte {
		return append(header{k, number, allowed}.append(nil), payload...)
	}
	// n is the number of the next message from the peer, which allows baseWindow.
	for name, data := range map[string]func(n uint64) []byte{
		"gap":               func(n uint64) []byte { return message(kindData, n+1, baseWindow, "foreign") },
		"duplicate":         func(n uint64) []byte { return message(kindData, n-1, baseWindow, "own") },
		"far away":          func(uint64) []byte { return message(kindData, 1<<63, baseWindow, "foreign") },
		"credit taken back": func(n uint64) []byte { return message(kindBeat, n, 1, "") },
		"no bytes":          func(n uint64) []byte { return message(kindData, n, baseWindow, "") },
		"too many bytes":    func(n uint64) []byte { return message(kindData, n, baseWindow, strings.Repeat("x", baseWindow)) },
		"another accept":    func(uint64) []byte { return message(kindAccept, 0, baseWindow, "") },
		"accept in turn":    func(n uint64) []byte { return message(kindAccept, n, baseWindow, "") },
		"open":              func(n uint64) []byte { return message(kindOpen, n, baseWindow, "\x01") },
		"unknown kind":      func(n uint64) []byte { return message(99, n, baseWindow, "") },
		"reset":             func(uint64) []byte { return message(kindReset, 7, 0, strings.Repeat("r", 1000)) },
		"short":             func(uint64) []byte { return []byte("short") },
		"nothing":           func(uint64) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connect(t, from, ln)
			defer a.Close()
			defer b.Close()
			if _, err := b.Write([]byte("own")); err != nil {
				t.Fatal(err)
			}
			b.out.Lock() // beats would have the number that is expected
			until(t, "what was written arrives", func() bool { return has(a, b.next) })
			err := raw.Send(a.own, "", data(b.next))
			if err == nil {
				var got []byte
				got, err = io.ReadAll(a)
				if string(got) != "own" {
					t.Errorf("read %q", got)
				}
			}
			b.out.Unlock()
			if !errors.Is(err, ErrBroken) {
				t.Errorf("Read = %v, want ErrBroken", err)
			}
			if name == "reset" {
				return // the peer has not sent it, and hears nothing from a
			}
			if _, err := io.ReadAll(b); !errors.Is(err, ErrBroken) {
				t.Errorf("the peer's Read = %v, want ErrBroken", err)
			}
		})
	}
}

// An end that broke without a word, as by a reset that a stranger sent, tells the other at its
// next beat, whether it was closed or not.
func TestBeatsTellOfBrokenPipes(t *testing.T) {
	a, b := pair(t, startServer(t, server.Options{}), lively)
	defer a.Close()
	a.fail(errors.New("test"), "")
	if _, err := io.ReadAll(b); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "no such pipe") {
		t.Errorf("Read = %v", err)
	}
}

// Peers that leave NATS, or stay there and say nothing, are noticed.
func TestDeadPeers(t *testing.T) {
	s := startServer(t, server.Options{})
	ln, err := s.hub(lively).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("gone", func(t *testing.T) {
		bus := natspipetest.Bus(t, s.URL())
		from := New(bus, lively)
		_, b := connect(t, from, ln)
		defer b.Close()
		bus.Close() // as if its process were killed
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("Read = %v", err)
		}
		from.Close()
	})
	t.Run("silent", func(t *testing.T) {
		strict, err := s.hub(Config{Beat: 20 * time.Millisecond, Missed: 5}).Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a, b := connect(t, s.hub(lively), strict)
		defer b.Close()
		a.out.Lock()
		defer a.out.Unlock()
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("Read = %v", err)
		}
	})
}

func TestDialFails(t *testing.T) {
	s := startServer(t, server.Options{})
	h := s.hub(Config{})
	ln, err := s.hub(Config{}).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	for _, subject := range []string{"", Root, "$JS.API.INFO", Root + ".*", Root + ".>", at + ".A", at + " x", at + "\r\nPUB x", strings.ToLower(at)} {
		if c, err := h.Dial(t.Context(), subject); err == nil {
			c.Close()
			t.Errorf("dialed %q", subject)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "nobody listens", func() bool { _, err := h.Dial(ctx, at); return errors.Is(err, ErrRefused) })
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v", err)
	}
	s.Stop()
	until(t, "the client knows", func() bool { return !h.bus.Connected() })
	short, cancel2 := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel2()
	if _, err := h.Dial(short, at); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Dial without NATS = %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.Dial(t.Context(), at); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial after Close = %v", err)
	}
	s.Restart()
}

// Pipes beyond the bounds are refused, and places are given back.
func TestBounds(t *testing.T) {
	s := startServer(t, server.Options{})
	ln, err := s.hub(Config{}).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := s.hub(Config{})
	for range backlog {
		if _, err := from.Dial(t.Context(), ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := from.Dial(t.Context(), ln.Addr().String()); !errors.Is(err, ErrRefused) {
		t.Errorf("one more than wait for Accept: %v", err)
	}
	for len(from.pipes) < maxPipes {
		if err := from.add(from.newConn(from.root + ".A")); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.add(from.newConn("")); !errors.Is(err, ErrRefused) {
		t.Errorf("one more than the process may have: %v", err)
	}
	if err := from.Close(); err != nil || len(from.pipes) != 0 {
		t.Errorf("%d pipes are left, %v", len(from.pipes), err)
	}
}

// Each pipe goes to one of the processes that listen at a subject, should there be two.
func TestOneSubjectTwoProcesses(t *testing.T) {
	s := startServer(t, server.Options{})
	one, two := s.hub(Config{}), s.hub(Config{})
	var answered [2]atomic.Int64
	var work sync.WaitGroup
	for i, h := range []*Hub{one, two} {
		ln, err := h.listenAt(one.root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.bus.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		work.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				answered[i].Add(1)
				fmt.Fprint(c, i)
				c.Close()
			}
		})
	}
	from := s.hub(Config{})
	const pipes = 100
	for range pipes {
		c, err := from.Dial(t.Context(), one.root)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); len(got) != 1 || err != nil {
			t.Fatalf("%q answered, %v", got, err)
		}
		c.Close()
	}
	if a, b := answered[0].Load(), answered[1].Load(); a+b != pipes || a == 0 || b == 0 {
		t.Errorf("%d and %d pipes", a, b)
	}
	one.Close()
	two.Close()
	work.Wait()
}

// has reports whether the next message that a pipe expects has a number.
func has(c *Conn, number uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expected == number
}

// The server is restarted while pipes carry bytes. What arrives is what was sent: pipes that
// lost something end on both sides.
func TestServerRestart(t *testing.T) {
	s := startServer(t, server.Options{})
	ln, err := s.hub(lively).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := s.hub(lively)
	for round := range 3 {
		idle, idlePeer := connect(t, from, ln)
		a, b := connect(t, from, ln)
		stop := make(chan struct{})
		var work sync.WaitGroup
		var sent, got bytes.Buffer
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(round), 1))
			for {
				select {
				case <-stop:
					a.CloseWrite()
					return
				default:
				}
				p := bytes.Repeat([]byte{byte(rnd.Uint32())}, 1+rnd.IntN(5000))
				n, err := a.Write(p)
				sent.Write(p[:n])
				if err != nil {
					return
				}
			}
		})
		var readErr error
		work.Go(func() { _, readErr = io.Copy(&got, b) })
		until(t, "bytes flow", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.sent > 100_000 })
		idle.out.Lock() // beats would be lost, too
		idlePeer.out.Lock()
		until(t, "nothing is on its way", func() bool { return has(idlePeer, idle.next) && has(idle, idlePeer.next) })
		s.Stop()
		until(t, "both notice", func() bool { return !from.bus.Connected() && !ln.hub.bus.Connected() })
		s.Restart()
		until(t, "both come back", func() bool { return from.bus.Connected() && ln.hub.bus.Connected() })
		idle.out.Unlock()
		idlePeer.out.Unlock()
		close(stop)
		work.Wait()
		if !bytes.HasPrefix(sent.Bytes(), got.Bytes()) {
			t.Fatalf("%d bytes arrived that were not sent, of %d", got.Len(), sent.Len())
		}
		if readErr == nil && got.Len() != sent.Len() {
			t.Fatalf("%d of %d bytes arrived, and Read said that it was all", got.Len(), sent.Len())
		}
		t.Logf("%d of %d bytes arrived: %v", got.Len(), sent.Len(), readErr)
		a.Close()
		b.Close()
		// It lost nothing, unless one side asked before the other was back.
		buf := make([]byte, 10)
		_, err := idle.Write([]byte("still here"))
		if err == nil {
			_, err = io.ReadFull(idlePeer, buf)
		}
		if err == nil && string(buf) != "still here" || err != nil && !errors.Is(err, ErrBroken) {
			t.Errorf("the idle pipe: %q, %v", buf, err)
		}
		idle.Close()
		idlePeer.Close()
		c, d := connect(t, from, ln) // new pipes work
		c.Close()
		d.Close()
	}
}

// Hostile messages never panic, never make a pipe hold more than it allowed, and what Read
// returns are payloads that came in their turn.
func FuzzMessages(f *testing.F) {
	f.Add(header{kindData, 1, 100}.append(nil), header{kindData, 2, 100}.append(nil))
	f.Add(append(header{kindData, 1, 1 << 40}.append(nil), "abc"...), append(header{kindFin, 2, 1 << 40}.append(nil), "x"...))
	f.Add(header{kindBye, 1, 5}.append(nil), header{kindReset, 0, 0}.append(nil))
	f.Add([]byte{}, []byte("x"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		h := &Hub{pipes: map[string]*Conn{}, poke: make(chan struct{}, 1), extra: extraWindow, cfg: Config{}.withDefaults()}
		h.leave = func() {} // it receives nothing from NATS
		c := h.newConn(Root + ".A.B")
		if err := h.add(c); err != nil {
			t.Fatal(err)
		}
		close(c.opened)
		c.expected = 1
		var want []byte
		next, broken := uint64(1), false
		for _, m := range [][]byte{one, two, one} {
			c.receive(events.CoreMessage{Data: m})
			head, payload, err := parse(m)
			if broken = broken || err != nil || head.number != next || head.kind != kindData && head.kind != kindBeat && head.kind != kindAsk; broken {
				continue
			}
			next++
			if head.kind == kindData {
				want = append(want, payload...)
			}
		}
		got := c.in[c.off:]
		if len(got) > baseWindow || !bytes.HasPrefix(want, got) {
			t.Errorf("read %q, sent %q", got, want)
		}
		(&Listener{hub: h, arrived: make(chan *Conn, 1)}).receive(events.CoreMessage{Data: []byte("no pipe"), Reply: "x"})
	})
}
