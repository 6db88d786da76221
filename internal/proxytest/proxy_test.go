package proxytest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/proxytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo returns a proxy in front of a server that sends back what it gets.
func echo(t *testing.T) *proxytest.Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return proxytest.New(t, l.Addr().String())
}

func dial(t *testing.T, p *proxytest.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience.Soon)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}

// What passes is what was sent, up to the end.
func TestWhole(t *testing.T) {
	p := echo(t)
	for _, chunk := range []int{0, 1, 7} {
		p.Chunk(chunk)
		c := dial(t, p)
		send(t, c, "hello, world")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(patience.Soon)); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello, world" {
			t.Errorf("in writes of %d: %q, %v", chunk, got, err)
		}
	}
	patience.Until(t, "no connection is left", func() bool { return p.Open() == 0 })
	if p.Accepted() != 3 || p.Sent() != 3*12 {
		t.Errorf("%d connections, %d bytes", p.Accepted(), p.Sent())
	}
}

// A delay is a delay, however much passes.
func TestDelayAndBandwidth(t *testing.T) {
	const delay = 100 * time.Millisecond
	p := echo(t)
	p.Delay(delay)
	c := dial(t, p)
	begin := time.Now()
	go func() {
		for range 20 { // one after the other, they would take 20 times as long
			_, _ = c.Write(bytes.Repeat([]byte("x"), 100))
			time.Sleep(time.Millisecond)
		}
	}()
	receive(t, c, 2000)
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("there and back in %s", took)
	}
	p.Delay(0)
	p.Bandwidth(20_000)
	begin = time.Now()
	send(t, c, string(make([]byte, 4000)))
	receive(t, c, 4000)
	if took := time.Since(begin); took < 180*time.Millisecond {
		t.Errorf("4000 bytes at 20,000 a second in %s", took)
	}
}

// Held bytes, and ends, arrive when the proxy heals.
func TestFreeze(t *testing.T) {
	p := echo(t)
	c, other := dial(t, p), dial(t, p)
	send(t, c, "a")
	receive(t, c, 1)
	p.Freeze()
	send(t, c, "b")
	if err := other.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{c, other} {
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || !isTimeout(err) {
			t.Errorf("while frozen: %d bytes, %v", n, err)
		}
	}
	p.Heal()
	if got := receive(t, c, 1); got != "b" {
		t.Errorf("afterwards: %q", got)
	}
	if err := other.SetReadDeadline(time.Now().Add(patience.Soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the other: %v", err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// A reset connection is reset, also while it is frozen or waits for a delay.
func TestReset(t *testing.T) {
	p := echo(t)
	for name, before := range map[string]func(){"open": func() {}, "frozen": p.Freeze, "delayed": func() { p.Delay(time.Hour) }} {
		old, young := dial(t, p), dial(t, p)
		patience.Until(t, "both are open", func() bool { return p.Open() == 2 })
		before()
		send(t, old, "x")
		p.ResetOldest()
		wantReset(t, name, old)
		if p.Open() != 1 {
			t.Errorf("%s: %d connections are left", name, p.Open())
		}
		p.Cut()
		wantReset(t, name, young)
		p.Heal()
		p.Delay(0)
	}
	p.Cut()
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // or it is reset before Dial returns
		wantReset(t, "while cut", c)
		_ = c.Close()
	}
	p.Heal()
	c := dial(t, p)
	send(t, c, "x")
	receive(t, c, 1)
}

func wantReset(t *testing.T, when string, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience.Soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: %v", when, err)
	}
}

// One bit of one byte changes, each way.
func TestFlip(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := proxytest.New(t, l.Addr().String())
	c := dial(t, p)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, round := range []struct {
		flip int64
		want string
	}{{0, "abcd"}, {7, "ab" + string('c'^0x10) + "d"}, {7, "abcd"}} { // the byte has passed
		p.Flip(round.flip)
		for _, way := range [][2]net.Conn{{c, server}, {server, c}} {
			send(t, way[0], "abcd")
			if got := receive(t, way[1], 4); got != round.want {
				t.Errorf("flip %d: %q, want %q", round.flip, got, round.want)
			}
		}
	}
}
