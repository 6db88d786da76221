package handshaketest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

// Door is a listener, with the clients that connect to it.
type Door struct {
	Protocol handshake.Protocol
	// Serve starts the listener for the length of the test. It closes a connection that
	// proves nothing after the timeout.
	Serve func(t *testing.T, key handshake.Key, timeout time.Duration) Listener
	// Call connects a client to a peer that accept serves, and returns the error; nil if
	// it succeeds.
	Call func(t *testing.T, key handshake.Key, accept func(net.Conn)) error
	// Old is the first message of earlier versions. The answer to it must not be longer
	// than OldAnswer.
	Old, OldAnswer string
}

// Listener is a running listener.
type Listener struct {
	Dial func() (net.Conn, error)
	// Use acts as a peer with the key does, and returns the error.
	Use func() error
	// Reached returns the number of connections that completed their handshake.
	Reached func() int
}

// patience limits every wait.
const patience = 30 * time.Second

// long is a timeout longer than any test.
const long = 10 * time.Minute

// Run makes all attacks, each in a test of its own.
func (d Door) Run(t *testing.T) {
	for _, attack := range []struct {
		name string
		f    func(Door, *testing.T)
	}{
		{"PublicGreeting", Door.publicGreeting},
		{"StrangerLearnsNothing", Door.strangerLearnsNothing},
		{"WrongSecret", Door.wrongSecret},
		{"ReplayedTranscript", Door.replayed},
		{"ReflectedChallenge", Door.reflected},
		{"TruncatedHello", Door.truncated},
		{"OversizedHello", Door.oversized},
		{"Slowloris", Door.slowloris},
		{"FloodOfSilence", Door.flood},
		{"Impersonation", Door.impersonation},
	} {
		t.Run(attack.name, func(t *testing.T) { attack.f(d, t) })
	}
}

func (d Door) serve(t *testing.T, timeout time.Duration) (Listener, handshake.Key) {
	key := handshake.RandomKey()
	return d.Serve(t, key, timeout), key
}

func (l Listener) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := l.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// rest reads up to the end of the connection, which the listener must bring about.
func rest(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	got, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("still connected after %s; read %q", patience, got)
	}
	return got
}

// still checks that nobody got in, and that a peer still does.
func (l Listener) still(t *testing.T) {
	t.Helper()
	if n := l.Reached(); n != 0 {
		t.Errorf("%d connections got in", n)
	}
	if err := l.Use(); err != nil {
		t.Errorf("a peer with the secret: %v", err)
	}
}

func (d Door) greeting() []byte { return append([]byte(d.Protocol.Name), d.Protocol.Version, 0) }

func (d Door) publicGreeting(t *testing.T) {
	l, _ := d.serve(t, 200*time.Millisecond)
	conn := l.dial(t)
	if _, err := io.WriteString(conn, d.Old); err != nil {
		t.Fatal(err)
	}
	if got := rest(t, conn); string(got) != d.OldAnswer {
		t.Errorf("answer %q, want %q", got, d.OldAnswer)
	}
	l.still(t)
}

// A stranger with the right greeting gets a nonce and no more, whatever it says next.
func (d Door) strangerLearnsNothing(t *testing.T) {
	l, _ := d.serve(t, 200*time.Millisecond)
	for _, next := range []string{"", strings.Repeat("p", 31), strings.Repeat("\x00", 32), strings.Repeat("\xff", 4096)} {
		conn := l.dial(t)
		hello := append(d.greeting(), bytes.Repeat([]byte{7}, 32)...)
		_, _ = conn.Write(append(hello, next...))
		got := rest(t, conn)
		if !bytes.HasPrefix(got, d.greeting()) {
			t.Fatalf("answer %q", got)
		}
		after := got[min(40, len(got)):]
		if len(after) > 33 || len(after) > 0 && (after[0] == 0 || !bytes.Equal(after[1:], make([]byte, len(after)-1))) {
			t.Errorf("behind the nonce: %q", after)
		}
	}
	l.still(t)
}

func (d Door) wrongSecret(t *testing.T) {
	l, _ := d.serve(t, patience)
	conn := l.dial(t)
	_, _, err := handshake.Connect(conn, handshake.Options{Protocol: d.Protocol, Key: handshake.RandomKey()}, time.Now().Add(patience))
	if !errors.Is(err, handshake.ErrSecret) || !strings.Contains(err.Error(), "refused by the server") {
		t.Errorf("a stranger is told: %v", err)
	}
	if got := rest(t, conn); len(got) > 0 {
		t.Errorf("and then: %q", got)
	}
	l.still(t)
}

// recorder keeps what was written.
type recorder struct {
	net.Conn
	said []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.said = append(r.said, b...)
	return r.Conn.Write(b)
}

func (d Door) replayed(t *testing.T) {
	l, key := d.serve(t, patience)
	rec := &recorder{Conn: l.dial(t)}
	if _, _, err := handshake.Connect(rec, handshake.Options{Protocol: d.Protocol, Key: key}, time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_ = rec.Close()
	before := l.Reached()
	conn := l.dial(t)
	if _, err := conn.Write(rec.said); err != nil {
		t.Fatal(err)
	}
	if got := rest(t, conn); len(got) != 40+33 || got[40] == 0 {
		t.Errorf("answer %q to a recorded handshake", got)
	}
	if n := l.Reached(); n != before {
		t.Error("a recorded handshake got in")
	}
}

// reflected sends back what the other side says, to servers and to clients, and uses one
// connection to answer the challenge of another.
func (d Door) reflected(t *testing.T) {
	l, key := d.serve(t, 500*time.Millisecond)
	conn := l.dial(t)
	_, _ = conn.Write(append(d.greeting(), make([]byte, 32)...))
	hello := make([]byte, 40)
	if _, err := io.ReadFull(conn, hello); err != nil {
		t.Fatal(err)
	}
	other := l.dial(t) // is asked to answer the challenge of the first one
	_, _ = other.Write(hello)
	if _, err := io.ReadFull(other, make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
	_, _ = other.Write(make([]byte, 32))
	answer := make([]byte, 33)
	if _, err := io.ReadFull(other, answer); err == nil {
		_, _ = conn.Write(answer[1:])
		if got := rest(t, conn); len(got) > 0 && got[0] == 0 {
			t.Error("a server has proved for a client")
		}
	}
	l.still(t)
	err := d.Call(t, key, func(c net.Conn) {
		said := make([]byte, 40+33)
		_, _ = io.ReadFull(c, said[:40])
		_, _ = c.Write(said[:40])
		_, _ = io.ReadFull(c, said[41:]) // its proof, behind a status of 0
		_, _ = c.Write(said[40:])
		_, _ = io.Copy(io.Discard, c)
	})
	if !errors.Is(err, handshake.ErrSecret) {
		t.Errorf("a client that talks to its mirror: %v", err)
	}
}

func (d Door) truncated(t *testing.T) {
	l, _ := d.serve(t, 100*time.Millisecond)
	hello := append(d.greeting(), make([]byte, 32)...)
	for _, n := range []int{0, 1, 7, 8, 9, 39} {
		conn := l.dial(t)
		_, _ = conn.Write(hello[:n])
		if got := rest(t, conn); len(got) > 0 {
			t.Errorf("%d bytes are answered with %q", n, got)
		}
	}
	l.still(t)
}

func (d Door) oversized(t *testing.T) {
	l, _ := d.serve(t, patience)
	conn := l.dial(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = conn.Write(append(d.greeting(), make([]byte, 8<<20)...)) // until the server hangs up
	})
	got := rest(t, conn)
	wg.Wait()
	if len(got) > 40+33 {
		t.Errorf("answer of %d bytes", len(got))
	}
	l.still(t)
}

func (d Door) slowloris(t *testing.T) {
	l, _ := d.serve(t, 300*time.Millisecond)
	conn := l.dial(t)
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() { // a byte at a time does not buy more of it
		for _, b := range append(d.greeting(), make([]byte, 1<<20)...) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	if got := rest(t, conn); len(got) > 0 {
		t.Errorf("answer %q", got)
	}
	wg.Wait()
	if took := time.Since(start); took > patience/2 {
		t.Errorf("hung up after %s", took)
	}
	l.still(t)
}

// flood fills the lobby several times with connections that say nothing.
func (d Door) flood(t *testing.T) {
	l, _ := d.serve(t, long)
	conns := make([]net.Conn, 0, 3*handshake.LobbySize)
	for range cap(conns) {
		conns = append(conns, l.dial(t))
	}
	l.still(t)
	open := 2 * handshake.LobbySize
	for end := time.Now().Add(patience / 3); open > handshake.LobbySize && time.Now().Before(end); {
		open = 0
		for _, c := range conns[:2*handshake.LobbySize] { // those that came first had to go
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				open++
			}
		}
	}
	if open > handshake.LobbySize {
		t.Errorf("%d of %d connections that came first are still there", open, 2*handshake.LobbySize)
	}
}

// impersonation has clients call servers that do not know the secret.
func (d Door) impersonation(t *testing.T) {
	key := handshake.RandomKey()
	hello := append(d.greeting(), make([]byte, 32)...)
	forged := func(status byte) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 40))
			_, _ = c.Write(hello)
			_, _ = io.ReadFull(c, make([]byte, 32))
			_, _ = c.Write(append([]byte{status}, make([]byte, 32)...))
			_, _ = io.Copy(io.Discard, c)
		}
	}
	for _, c := range []struct {
		name   string
		accept func(net.Conn)
	}{
		{"another secret", func(c net.Conn) {
			_, _, _ = handshake.Accept(c, handshake.Options{Protocol: d.Protocol, Key: handshake.RandomKey()}, time.Now().Add(patience))
		}},
		{"no proof", forged(0)},
		{"a refusal", forged(3)},
		{"an unknown status", forged(77)},
		{"early proof", func(c net.Conn) {
			_, _ = c.Write(append(hello, make([]byte, 33)...))
			_, _ = io.Copy(io.Discard, c)
		}},
	} {
		if err := d.Call(t, key, c.accept); !errors.Is(err, handshake.ErrSecret) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	err := d.Call(t, key, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 40))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	})
	if !errors.Is(err, handshake.ErrForeign) {
		t.Errorf("another protocol: %v", err)
	}
}

// Pair returns the two ends of a connection.
func Pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}
