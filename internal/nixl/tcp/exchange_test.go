package tcp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/exchange"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

func exchanging(o Options) nixltest.Env {
	return nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{New(o)} }}
}

func addrOf(t *testing.T, a *nixl.Agent) string {
	t.Helper()
	addr, err := a.ExchangeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestExchange(t *testing.T) {
	e := exchanging(Options{Exchange: true})
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	ctx := nixltest.Context(t)
	for range 5000 { // a blob of many frames of the network
		if _, err := b.Register(make(nixltest.Heap, 8), nixl.DRAM, nixl.WithLabel("some label that takes room")); err != nil {
			t.Fatal(err)
		}
	}
	nixltest.Region(t, b, 4096)
	if name, err := a.FetchMetadata(ctx, addrOf(t, b)); name != "b" || err != nil {
		t.Fatalf("FetchMetadata() = %q, %v", name, err)
	}
	if _, err := a.RemoteRegion("b", "kv"); err != nil {
		t.Error(err)
	}
	conn, err := a.PartialMetadata(nixl.PartialSpec{Connection: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SendMetadata(ctx, addrOf(t, b), conn); err != nil {
		t.Fatal(err)
	}
	if !b.Known("a", a.Incarnation()) {
		t.Error("b does not know a")
	}
	if err := b.Notify(ctx, "a", []byte("hi")); err != nil {
		t.Error(err)
	}
	nixltest.Next(t, a)
	// Whoever asks may speak for itself only.
	if err := a.SendMetadata(ctx, addrOf(t, b), b.Metadata()); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("metadata of somebody else: %v", err)
	}
	if err := a.SendMetadata(ctx, addrOf(t, b), []byte("garbage")); nixl.StatusOf(err) != nixl.ErrMismatch {
		t.Errorf("garbage: %v", err)
	}
	if err := a.SendInvalidation(ctx, addrOf(t, b)); err != nil || b.Known("a", "") {
		t.Errorf("SendInvalidation(): %v", err)
	}
	if err := a.SendInvalidation(ctx, addrOf(t, b)); nixl.StatusOf(err) != nixl.ErrNotFound {
		t.Errorf("second SendInvalidation(): %v", err)
	}
	// An earlier run of a cannot make b forget the present one.
	nixltest.Load(t, b, a)
	old := e.Agent(t, "a")
	if err := old.SendInvalidation(ctx, addrOf(t, b)); nixl.StatusOf(err) != nixl.ErrNotFound || !b.Known("a", a.Incarnation()) {
		t.Errorf("invalidation by another incarnation: %v", err)
	}
}

func TestExchangeRefused(t *testing.T) {
	ctx := nixltest.Context(t)
	a := exchanging(Options{Exchange: true}).Agent(t, "a")
	stranger := exchanging(Options{Exchange: true}).Agent(t, "b", func(c *nixl.Config) { c.Key = handshake.RandomKey() })
	if _, err := stranger.FetchMetadata(ctx, addrOf(t, a)); nixl.StatusOf(err) != nixl.ErrNotAllowed || !errors.Is(err, handshake.ErrSecret) {
		t.Errorf("another secret: %v", err)
	}
	unasked := exchanging(Options{}).Agent(t, "c")
	if _, err := unasked.FetchMetadata(ctx, addrOf(t, a)); nixl.StatusOf(err) != nixl.ErrNotSupported {
		t.Errorf("agent that does not exchange: %v", err)
	}
	plain := exchanging(Options{}).Agent(t, "plain")
	if _, err := plain.ExchangeAddr(); nixl.StatusOf(err) != nixl.ErrNotSupported {
		t.Errorf("address of an agent that does not exchange: %v", err)
	}
	gone := exchanging(Options{Exchange: true}).Agent(t, "gone")
	addr := addrOf(t, gone)
	_ = gone.Close()
	if err := a.SendInvalidation(ctx, addr); nixl.StatusOf(err) != nixl.ErrRemoteDisconnect {
		t.Errorf("nobody listens: %v", err)
	}
}

// A peer that says nothing is waited for until the deadline, and Close ends its
// connection at once.
func TestExchangeDeadlines(t *testing.T) {
	e := exchanging(Options{Exchange: true, ConnectTimeout: 100 * time.Millisecond, SilenceTimeout: 100 * time.Millisecond})
	a := e.Agent(t, "a")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	start := time.Now()
	if _, err := a.FetchMetadata(nixltest.Context(t), silent.Addr().String()); err == nil {
		t.Error("a silent listener has answered")
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("given up after %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.FetchMetadata(ctx, silent.Addr().String()); err == nil {
		t.Error("fetched without patience")
	}

	b := exchanging(Options{Exchange: true, SilenceTimeout: time.Hour}).Agent(t, "b")
	nc, err := net.Dial("tcp", addrOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	_, proved, err := handshake.Connect(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write(frame{header: header{kind: kindExchange}}.append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := exchange.Dial(nc, proved.Key, nixl.Identity{Name: "x", Incarnation: "1"}); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
}

// FuzzExchange sends bytes in the place of a conversation: the agent survives, and
// neither loads nor forgets anything.
func FuzzExchange(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 6, 1, 'x', 1, '1'})
	f.Add(make([]byte, 100))
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	a, err := nixl.NewAgent(nixl.Config{Name: "a", Key: nixltest.Key, Transports: []nixl.Transport{New(Options{Exchange: true, ConnectTimeout: time.Second})}})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	addr, err := a.ExchangeAddr()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Skip(err)
		}
		defer func() { _ = nc.Close() }()
		if _, _, err := handshake.Connect(nc, handshake.Options{Protocol: spoken, Key: nixltest.Key}, time.Now().Add(time.Minute)); err != nil {
			t.Skip(err)
		}
		_, _ = nc.Write(append(frame{header: header{kind: kindExchange}}.append(nil), b...))
		_ = nc.(*net.TCPConn).CloseWrite()
		_ = nc.SetReadDeadline(time.Now().Add(5 * time.Second))
		for buf := make([]byte, 1024); err == nil; {
			_, err = nc.Read(buf)
		}
		if len(a.Peers()) != 0 {
			t.Errorf("peers = %+v", a.Peers())
		}
	})
}
