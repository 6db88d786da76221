package requestplanetest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Thousands of requests run at a time between two peers.
func testManyStreams(t *testing.T, newPlane Make) {
	n := patience.Rounds(3000)
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	release := make(chan struct{})
	p.handle("1/hold", func(ctx context.Context, req *requestplane.Request, send func(any) error) error {
		var it item
		if err := req.Decode(&it); err != nil {
			return err
		}
		if err := send(it); err != nil {
			return err
		}
		select {
		case <-release:
			return send(it)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	streams := make([]requestplane.Stream, n)
	for i := range streams {
		streams[i] = p.call("1/hold", item{N: i})
	}
	for i, st := range streams {
		if got := p.recvFast(st); got.N != i {
			t.Fatalf("stream %d got %+v", i, got)
		}
	}
	if running := p.server.InFlight("1/hold"); running != n {
		t.Errorf("InFlight = %d, want %d", running, n)
	}
	close(release)
	for i, st := range streams {
		if got := p.recvFast(st); got.N != i {
			t.Fatalf("stream %d got %+v", i, got)
		}
		if err := p.recvErr(st); err != io.EOF {
			t.Fatalf("stream %d ended with %v", i, err)
		}
	}
}

// Callers that do not read hold up their own handlers, nobody else's.
func testSlowReaders(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/count", count)
	sent := make(chan struct{}, 1)
	p.handle("1/flood", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		for {
			if err := send(item{Text: string(make([]byte, 10_000))}); err != nil {
				return err
			}
			select {
			case sent <- struct{}{}:
			default:
			}
		}
	})
	var slow []requestplane.Stream
	for range 100 {
		slow = append(slow, p.call("1/flood", nil))
	}
	p.quiet(sent) // all of them are blocked
	const n = 1000
	st := p.call("1/count", item{N: n})
	for i := range n {
		if got := p.recvFast(st); got.N != i+1 {
			t.Fatalf("item %d = %+v", i+1, got)
		}
	}
	for _, st := range slow {
		st.Close()
	}
	p.until("the slow requests leave", func() bool { return p.server.InFlight("1/flood") == 0 })
}

// Only errors that prove that no handler ran let a caller send the request elsewhere
// without repeating work.
func testRetrySafe(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	var mu sync.Mutex
	ran := map[string]bool{}
	serve := func(path string, err error) func(context.Context) error {
		return p.handle(path, func(context.Context, *requestplane.Request, func(any) error) error {
			mu.Lock()
			defer mu.Unlock()
			ran[path] = true
			return err
		})
	}
	serve("1/overloaded", requestplane.ErrOverloaded)
	serve("1/draining", &requestplane.RemoteError{Kind: requestplane.KindDraining})
	serve("1/unknown", &requestplane.RemoteError{Kind: requestplane.KindUnknownEndpoint})
	serve("1/unreachable", requestplane.ErrCannotConnect)
	serve("1/internal", errors.New("boom"))
	if err := serve("1/removed", nil)(p.ctx()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"1/overloaded", "1/draining", "1/unknown", "1/unreachable", "1/internal", "1/removed", "1/never"} {
		err := p.recvErr(p.call(path, nil))
		mu.Lock()
		if safe := requestplane.NotStarted(err); safe == ran[path] {
			t.Errorf("%s: %v is safe to retry: %t, a handler ran: %t", path, err, safe, ran[path])
		}
		mu.Unlock()
	}
	addr := p.addr("1/internal")
	if err := p.server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Call(p.ctx(), addr, "r", nil, nil); !requestplane.NotStarted(err) {
		t.Errorf("without a server: %v is not safe to retry", err)
	}
}
