package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

var limits = Limits{Message: 1 << 20, Frames: 4, Begun: patience.Soon}

func soon() time.Time { return time.Now().Add(patience.Soon) }

// pair returns both ends of a TCP connection.
func pair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a, b
}

// opened returns two sockets that have greeted each other.
func opened(t testing.TB, us, them string, limits Limits) (a, b *Conn) {
	t.Helper()
	ca, cb := pair(t)
	done := make(chan error, 1)
	go func() {
		var err error
		b, err = Open(cb, them, limits, soon())
		done <- err
	}()
	a, err := Open(ca, us, limits, soon())
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestMessages(t *testing.T) {
	for _, kinds := range [][2]string{{Sub, Pub}, {Dealer, Router}} {
		a, b := opened(t, kinds[0], kinds[1], limits)
		for _, frames := range [][][]byte{
			{{}}, {[]byte("one")}, {[]byte("topic"), {}, bytes.Repeat([]byte("x"), 255)},
			{bytes.Repeat([]byte("y"), 256), bytes.Repeat([]byte("z"), 3*chunk+1), {}, {1}},
		} {
			sent := make(chan error, 1)
			go func() { sent <- b.Send(frames...) }()
			got, err := a.Receive(soon())
			if err = errors.Join(err, <-sent); err != nil || !slices.EqualFunc(got, frames, bytes.Equal) {
				t.Fatalf("%s: got %d frames, want %d, %v", kinds, len(got), len(frames), err)
			}
		}
	}
}

func TestSubscription(t *testing.T) {
	a, b := opened(t, Sub, Pub, limits)
	if err := a.Subscribe("kv@"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Receive(soon()); err != nil || len(got) != 1 || string(got[0]) != "\x01kv@" {
		t.Errorf("got %q, %v", got, err)
	}
}

// A heartbeat is answered, and other commands are no messages.
func TestCommands(t *testing.T) {
	a, b := opened(t, Sub, Pub, limits)
	for _, body := range []string{"\x04PING\x00\x0acontext", "\x04PING", "\x03OFF", ""} {
		if err := b.write(flagCommand, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Send([]byte("message")); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Receive(soon()); err != nil || string(got[0]) != "message" {
		t.Fatalf("got %q, %v", got, err)
	}
	if body, flags, err := b.frame(100); err != nil || flags != flagCommand || string(body) != "\x04PONGcontext" {
		t.Errorf("the answer is %q, flags %d, %v", body, flags, err)
	}
}

// Receive waits for a message until a deadline, and goes on after it.
func TestDeadline(t *testing.T) {
	a, b := opened(t, Sub, Pub, limits)
	if got, err := a.Receive(time.Now().Add(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v", got, err)
	}
	if err := b.Send([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Receive(time.Time{}); err != nil || string(got[0]) != "late" {
		t.Errorf("got %q, %v", got, err)
	}
}

// replace returns a greeting with other bytes from a position on.
func replace(at int, bytes ...byte) []byte {
	g := greeting()
	copy(g[at:], bytes)
	return g
}

func frame(flags byte, body string) []byte { return append([]byte{flags, byte(len(body))}, body...) }

func TestForeignPeers(t *testing.T) {
	good := append(greeting(), frame(flagCommand, string(ready(Pub)))...)
	for name, tc := range map[string]struct {
		sends []byte
		says  string
	}{
		"http":           {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "it greets with"},
		"old":            {replace(10, 1), "it greets with"},
		"unsigned":       {replace(9, 0), "it greets with"},
		"curve":          {replace(12, []byte("CURVE")...), `"CURVE"`},
		"other socket":   {append(greeting(), frame(flagCommand, string(ready(Router)))...), `"ROUTER", which does not talk to a SUB`},
		"message first":  {append(greeting(), frame(0, string(ready(Pub)))...), "no command"},
		"error":          {append(greeting(), frame(flagCommand, "\x05ERROR\x02no")...), `it says "no"`},
		"other command":  {append(greeting(), frame(flagCommand, "\x05HELLO")...), `"HELLO"`},
		"empty":          {append(greeting(), frame(flagCommand, "")...), "no command"},
		"no type":        {append(greeting(), frame(flagCommand, "\x05READY\x01A\x00\x00\x00\x01x")...), "does not say"},
		"cut property":   {append(greeting(), frame(flagCommand, "\x05READY\x0bSocket-Type\x00\x00\x00\xffPUB")...), "cut"},
		"huge property":  {append(greeting(), frame(flagCommand, "\x05READY\x0bSocket-Type\xff\xff\xff\xffPUB")...), "cut"},
		"shorter":        {append(greeting(), frame(flagCommand, "\x05READY\x0bSock")...), "cut"},
		"huge ready":     {append(greeting(), flagCommand|flagLong, 0, 0, 0, 0, 0, 1, 0, 0), "65536 bytes"},
		"hangs up":       {greeting()[:20], "EOF"},
		"odd flags":      {append(slices.Clone(good), 8, 0), "flags 0x8"},
		"more commands":  {append(slices.Clone(good), flagMore|flagCommand, 0), "flags 0x5"},
		"huge frame":     {append(slices.Clone(good), flagLong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "18446744073709551615 bytes"},
		"many frames":    {append(slices.Clone(good), bytes.Repeat([]byte{flagMore, 0}, 5)...), "more than 4 frames"},
		"large together": {slices.Concat(good, []byte{flagMore | flagLong}, binary.BigEndian.AppendUint64(nil, 1<<20-1), make([]byte, 1<<20-1), []byte{0, 2, 0, 0}), "a frame of 2 bytes"},
		"cut frame":      {append(slices.Clone(good), 0, 5, 'x'), "unexpected EOF"},
		"cut size":       {append(slices.Clone(good), flagLong, 0), "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			go func() {
				_, _ = b.Write(tc.sends)
				_ = b.(*net.TCPConn).CloseWrite()
			}()
			z, err := Open(a, Sub, limits, soon())
			if err == nil {
				_, err = z.Receive(soon())
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if strings.Contains(tc.says, "EOF") != (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
				t.Errorf("%v is of another kind", err)
			}
		})
	}
}

// A peer that greets slowly, or stops within a message, is given up.
func TestSlowPeers(t *testing.T) {
	short := limits
	short.Begun = 20 * time.Millisecond
	for name, sends := range map[string][]byte{
		"silent": {}, "greeting": greeting(), "message": slices.Concat(greeting(), frame(flagCommand, string(ready(Pub))), []byte{0, 5, 'x'}),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			if _, err := b.Write(sends); err != nil {
				t.Fatal(err)
			}
			deadline := soon()
			if name != "message" {
				deadline = time.Now().Add(short.Begun)
			}
			z, err := Open(a, Sub, short, deadline)
			if err == nil {
				_, err = z.Receive(time.Time{})
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What a peer claims to send takes no memory before it arrives.
func TestClaimsTakeNoMemory(t *testing.T) {
	large := limits
	large.Message = 1 << 30
	a, b := opened(t, Sub, Pub, large)
	if _, err := b.c.Write(binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<30)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	b.c.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := a.Receive(soon()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d bytes for 1000", after.TotalAlloc-before.TotalAlloc)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(frame(flagCommand, string(ready(Pub))))
	f.Add(slices.Concat(frame(flagCommand, string(ready(Pub))), frame(flagMore, "topic"), frame(0, "x"), frame(flagCommand, "\x04PING\x00\x00x")))
	f.Fuzz(func(t *testing.T, sends []byte) {
		a, b := net.Pipe()
		defer a.Close()
		go func() {
			defer b.Close()
			_, _ = b.Write(append(greeting(), sends...))
		}()
		go func() { _, _ = io.Copy(io.Discard, b) }()
		z, err := Open(a, Sub, Limits{Message: 1000, Frames: 3, Begun: time.Minute}, time.Now().Add(time.Minute))
		for err == nil {
			var frames [][]byte
			if frames, err = z.Receive(time.Time{}); err == nil {
				if n := len(bytes.Join(frames, nil)); n > 1000 || len(frames) > 3 {
					t.Fatalf("%d bytes in %d frames", n, len(frames))
				}
			}
		}
	})
}
