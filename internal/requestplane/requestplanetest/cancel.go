package requestplanetest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// promptly limits the time until a handler learns that its caller left. That takes a
// fraction of a millisecond; the limit leaves room for a busy test machine.
const promptly = 10 * time.Second

func testCloseCancels(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	st := p.call("1/gate", nil)
	p.recv(st)
	start := time.Now()
	st.Close()
	st.Close()
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrStopped) {
		t.Errorf("handler's cause = %v, want ErrStopped", err)
	}
	if d := (<-g.at).Sub(start); d > promptly {
		t.Errorf("handler told after %s", d)
	}
	if err := p.recvErr(st); !errors.Is(err, requestplane.ErrStreamClosed) {
		t.Errorf("Recv after Close = %v, want ErrStreamClosed", err)
	}
	p.until("request leaves", func() bool { return p.server.InFlight("1/gate") == 0 })
}

func testContextCancels(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	why := errors.New("user went away")
	ctx, cancel := context.WithCancelCause(p.ctx())
	st := p.callCtx(ctx, "1/gate", nil)
	p.recv(st)
	done := make(chan error, 1)
	go func() { done <- st.Recv(ctx, nil) }()
	start := time.Now()
	cancel(why)
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrStopped) {
		t.Errorf("handler's cause = %v, want ErrStopped", err)
	}
	if d := (<-g.at).Sub(start); d > promptly {
		t.Errorf("handler told after %s", d)
	}
	if err := <-done; err != why {
		t.Errorf("Recv = %v, want the cause", err)
	}
	if err := p.recvErr(st); err != why {
		t.Errorf("second Recv = %v, want the cause", err)
	}
}

func testClientCloseCancels(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	st := p.call("1/gate", nil)
	p.recv(st)
	other, err := p.more().Call(p.ctx(), p.addr("1/gate"), "other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p.recv(other)

	if err := p.client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrClientGone) {
		t.Errorf("handler's cause = %v, want ErrClientGone", err)
	}
	if err := p.recvErr(st); !errors.Is(err, requestplane.ErrClientClosed) {
		t.Errorf("Recv = %v, want ErrClientClosed", err)
	}
	p.until("one request is left", func() bool { return p.server.InFlight("1/gate") == 1 })
	close(g.release) // the other client's request ends as it should
	if err := p.recvErr(other); err != io.EOF {
		t.Errorf("other client's stream = %v, want io.EOF", err)
	}
}

// A handler that is stuck in send, because nobody reads, must learn of the
// cancellation too.
func testCancelWhileBlocked(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	sent := make(chan struct{}, 1)
	result := make(chan error, 1)
	p.handle("1/flood", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		for {
			if err := send(item{Text: string(make([]byte, 1000))}); err != nil {
				result <- err
				return err
			}
			select {
			case sent <- struct{}{}:
			default:
			}
		}
	})
	st := p.call("1/flood", nil)
	p.quiet(sent)
	start := time.Now()
	st.Close()
	select {
	case err := <-result:
		if !errors.Is(err, requestplane.ErrStopped) {
			t.Errorf("send = %v, want ErrStopped", err)
		}
		if d := time.Since(start); d > promptly {
			t.Errorf("send failed after %s", d)
		}
	case <-time.After(limit):
		t.Fatal("send still blocks")
	}
	p.until("request leaves", func() bool { return p.server.InFlight("1/flood") == 0 })
}

// quiet returns when nothing has come from ch for a while.
func (p *plane) quiet(ch <-chan struct{}) {
	p.Helper()
	deadline := time.After(limit)
	for {
		select {
		case <-ch:
		case <-time.After(50 * time.Millisecond):
			return
		case <-deadline:
			p.Fatalf("still going after %s", limit)
		}
	}
}

func testBackPressure(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	var sent atomic.Int64
	tick := make(chan struct{}, 1)
	const total, size = 3000, 4000
	p.handle("1/many", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		text := string(make([]byte, size))
		for i := range total {
			if err := send(item{N: i, Text: text}); err != nil {
				return err
			}
			sent.Add(1)
			select {
			case tick <- struct{}{}:
			default:
			}
		}
		return nil
	})
	st := p.call("1/many", nil)
	p.quiet(tick)
	if n := sent.Load(); n*size > 2<<20 || n == 0 {
		t.Errorf("handler got %d items (%d bytes) ahead of a caller that does not read", n, n*size)
	}
	if got := p.recv(p.call("1/echo", item{N: 1})); got.N != 1 { // others are not held up
		t.Errorf("item = %+v", got)
	}
	for i := range total {
		if got := p.recvFast(st); got.N != i || len(got.Text) != size {
			t.Fatalf("item %d = %d, %d bytes", i, got.N, len(got.Text))
		}
	}
	if err := p.recvErr(st); err != io.EOF {
		t.Errorf("end = %v, want io.EOF", err)
	}
}

func testDeadline(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	p.handle("1/echo", echo)
	p.recv(p.call("1/echo", item{N: 1})) // the time is not for the first connection
	ctx, cancel := context.WithTimeout(p.ctx(), 300*time.Millisecond)
	defer cancel()
	st := p.callCtx(ctx, "1/gate", nil)
	p.recv(st)
	if err := st.Recv(ctx, nil); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, requestplane.ErrTimeout) {
		t.Errorf("Recv = %v, want a deadline error", err)
	}
	// The caller leaves at the same moment at which the server's clock runs out.
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrTimeout) && !errors.Is(err, requestplane.ErrStopped) {
		t.Errorf("handler's cause = %v, want ErrTimeout or ErrStopped", err)
	}
}

// frozen has a deadline but never ends: a caller that forgot its own deadline.
type frozen struct {
	context.Context
	deadline time.Time
}

func (f frozen) Deadline() (time.Time, bool) { return f.deadline, true }

func testDeadlineOnServer(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	start := time.Now()
	st := p.callCtx(frozen{p.ctx(), start.Add(100 * time.Millisecond)}, "1/gate", nil)
	p.recv(st)
	err := p.recvErr(st)
	wantKind(t, err, requestplane.KindTimeout)
	if !errors.Is(err, requestplane.ErrTimeout) {
		t.Errorf("end = %v, want ErrTimeout", err)
	}
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrTimeout) {
		t.Errorf("handler's cause = %v, want ErrTimeout", err)
	}
	if d := time.Since(start); d < 100*time.Millisecond {
		t.Errorf("handler stopped after %s, before the deadline", d)
	}
}

// A Recv that gives up takes nothing from the stream.
func testRecvContext(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	next := make(chan int)
	p.handle("1/next", func(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
		for n := range next {
			if err := send(item{N: n}); err != nil {
				return err
			}
		}
		return nil
	})
	st := p.call("1/next", nil)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(p.ctx(), time.Duration(i%5)*time.Millisecond)
		var it item
		if err := st.Recv(ctx, &it); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Recv = %v, want DeadlineExceeded", err)
		}
		cancel()
		next <- i
		if got := p.recv(st); got.N != i {
			t.Fatalf("item = %+v, want %d", got, i)
		}
	}
	close(next)
	if err := p.recvErr(st); err != io.EOF {
		t.Errorf("end = %v, want io.EOF", err)
	}
}

func testCallAfterCancel(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	why := errors.New("never mind")
	ctx, cancel := context.WithCancelCause(p.ctx())
	cancel(why)
	if _, err := p.client.Call(ctx, p.addr("1/echo"), "r", nil, nil); !errors.Is(err, why) {
		t.Errorf("Call = %v, want the cause", err)
	}
}

func testCallAfterClose(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	if err := p.client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Call(p.ctx(), p.addr("1/echo"), "r", nil, nil); !errors.Is(err, requestplane.ErrClientClosed) {
		t.Errorf("Call = %v, want ErrClientClosed", err)
	}
}

// Random callers read to the end, stop early, or let a deadline pass. Nothing may
// arrive out of order, and nothing may stay behind on the server.
func testRandomTraffic(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/count", count)
	clients := []requestplane.Client{p.client, p.more(), p.more()}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for g := range 16 {
		rnd := rand.New(rand.NewPCG(seed, uint64(g)))
		wg.Go(func() {
			for range patience.Rounds(20) {
				randomCall(t, rnd, clients[rnd.IntN(len(clients))], p.addr("1/count"))
			}
		})
	}
	wg.Wait()
	p.until("all requests leave", func() bool { return p.server.InFlight("1/count") == 0 })
}

func randomCall(t *testing.T, rnd *rand.Rand, c requestplane.Client, addr string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := rnd.IntN(2000)
	stopAt, cancelAt := n+1, n+1
	switch rnd.IntN(4) {
	case 0:
		stopAt = rnd.IntN(n + 1)
	case 1:
		cancelAt = rnd.IntN(n + 1)
	}
	st, err := c.Call(ctx, addr, "r", nil, item{N: n})
	if err != nil {
		t.Errorf("Call: %v", err)
		return
	}
	defer st.Close()
	for i := range n {
		switch i {
		case stopAt:
			return
		case cancelAt:
			cancel()
		}
		var it item
		err := st.Recv(ctx, &it)
		if ctx.Err() != nil && err != nil {
			return
		}
		if err != nil || it.N != i+1 {
			t.Errorf("item %d = %+v, %v", i+1, it, err)
			return
		}
	}
	if err := st.Recv(ctx, nil); err != io.EOF && ctx.Err() == nil {
		t.Errorf("end = %v, want io.EOF", err)
	}
}
