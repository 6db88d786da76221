package requestplanetest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/requestplane"
)

func testUnknownEndpoint(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/generate", echo)
	for _, path := range []string{"1/generate2", "1/gen", "2/generate", "1/generate/"} {
		err := p.recvErr(p.call(path, nil))
		if !errors.Is(err, requestplane.ErrUnknownEndpoint) || !requestplane.NotStarted(err) {
			t.Errorf("%s: %v, want ErrUnknownEndpoint", path, err)
		}
	}
}

func testBadAddress(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	for _, addr := range []string{"", "/", "host:1", "host:1/", "/path"} {
		if _, err := p.client.Call(p.ctx(), addr, "r", nil, nil); !errors.Is(err, requestplane.ErrCannotConnect) {
			t.Errorf("Call(%q) = %v, want ErrCannotConnect", addr, err)
		}
	}
}

func testNoServer(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	addr := p.addr("1/echo")
	if err := p.server.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.client.Call(p.ctx(), addr, "r", nil, nil); !errors.Is(err, requestplane.ErrCannotConnect) {
			t.Errorf("Call = %v, want ErrCannotConnect", err)
		}
	}
}

func testEndpointExists(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	if _, err := p.server.Handle("1/echo", echo); !errors.Is(err, requestplane.ErrEndpointExists) {
		t.Errorf("second Handle = %v, want ErrEndpointExists", err)
	}
	if _, err := p.server.Handle("1/nil", nil); err == nil {
		t.Error("Handle accepted a nil handler")
	}
	if _, err := p.server.Handle("", echo); err == nil {
		t.Error("Handle accepted an empty path")
	}
}

func testOverloaded(t *testing.T, newPlane Make) {
	const limit = 4
	p := newTestPlane(t, newPlane, requestplane.Limits{MaxInFlight: limit})
	g := newGate()
	p.handle("1/gate", g.handle)
	p.handle("1/echo", echo)
	var running []requestplane.Stream
	for range limit {
		st := p.call("1/gate", nil)
		p.recv(st)
		running = append(running, st)
	}
	for _, path := range []string{"1/gate", "1/echo"} { // the limit is one for all endpoints
		err := p.recvErr(p.call(path, item{Text: string(make([]byte, 1<<20))}))
		if !errors.Is(err, requestplane.ErrOverloaded) {
			t.Errorf("%s: %v, want ErrOverloaded", path, err)
		}
	}
	close(g.release)
	for _, st := range running {
		if err := p.recvErr(st); err != io.EOF {
			t.Errorf("end = %v, want io.EOF", err)
		}
	}
	p.until("a place is free", func() bool {
		var it item
		return p.call("1/echo", item{N: 1}).Recv(p.ctx(), &it) == nil
	})
}

func testRemove(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	remove := p.handle("1/gate", g.handle)
	st := p.call("1/gate", nil)
	p.recv(st)

	removed := make(chan struct{})
	go func() {
		defer close(removed)
		if err := remove(p.ctx()); err != nil {
			t.Errorf("remove: %v", err)
		}
	}()
	p.until("endpoint refuses", func() bool {
		st := p.call("1/gate", nil)
		defer st.Close()
		var it item
		err := st.Recv(p.ctx(), &it)
		return errors.Is(err, requestplane.ErrDraining) && requestplane.NotStarted(err)
	})
	select {
	case <-removed:
		t.Fatal("remove returned while a request was running")
	default:
	}
	close(g.release)
	p.wait("remove", removed)
	if err := p.recvErr(st); err != io.EOF {
		t.Errorf("running request ended with %v, want io.EOF", err)
	}
	if err := p.recvErr(p.call("1/gate", nil)); !errors.Is(err, requestplane.ErrUnknownEndpoint) {
		t.Errorf("after remove: %v, want ErrUnknownEndpoint", err)
	}
	if err := remove(p.ctx()); err != nil {
		t.Errorf("second remove: %v", err)
	}
}

func testRemoveTimesOut(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	remove := p.handle("1/gate", g.handle)
	st := p.call("1/gate", nil)
	p.recv(st)
	ctx, cancel := context.WithTimeout(p.ctx(), 20*time.Millisecond)
	defer cancel()
	if err := remove(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("remove = %v, want DeadlineExceeded", err)
	}
	if err := p.recvErr(p.call("1/gate", nil)); !errors.Is(err, requestplane.ErrDraining) {
		t.Errorf("after a failed remove: %v, want ErrDraining", err)
	}
	close(g.release)
	if err := remove(p.ctx()); err != nil {
		t.Errorf("second remove: %v", err)
	}
}

func testRemoveThenHandle(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	old := p.handle("1/echo", echo)
	if err := old(p.ctx()); err != nil {
		t.Fatal(err)
	}
	p.handle("1/echo", echo)
	if err := old(p.ctx()); err != nil { // must not remove its successor
		t.Fatal(err)
	}
	if got := p.recv(p.call("1/echo", item{N: 9})); got.N != 9 {
		t.Errorf("item = %+v", got)
	}
}

func testInFlight(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	p.handle("1/other", g.handle)
	if n := p.server.InFlight("1/gate"); n != 0 {
		t.Errorf("InFlight = %d, want 0", n)
	}
	var wg sync.WaitGroup
	for range 3 {
		st := p.call("1/gate", nil)
		p.recv(st)
		wg.Go(func() { st.Recv(t.Context(), nil) })
	}
	if n := p.server.InFlight("1/gate"); n != 3 {
		t.Errorf("InFlight = %d, want 3", n)
	}
	if n := p.server.InFlight("1/other") + p.server.InFlight("1/none"); n != 0 {
		t.Errorf("InFlight of others = %d, want 0", n)
	}
	close(g.release)
	wg.Wait()
	p.until("InFlight is 0", func() bool { return p.server.InFlight("1/gate") == 0 })
}

func testServerCloseIncomplete(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	g := newGate()
	p.handle("1/gate", g.handle)
	st := p.call("1/gate", nil)
	p.recv(st)
	if err := p.server.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := p.recvErr(st)
		if !errors.Is(err, requestplane.ErrIncomplete) || !errors.Is(err, requestplane.ErrDisconnected) || requestplane.NotStarted(err) {
			t.Errorf("end = %v, want ErrIncomplete", err)
		}
	}
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrServerClosed) {
		t.Errorf("handler's cause = %v, want ErrServerClosed", err)
	}
	if _, err := p.server.Handle("1/late", echo); !errors.Is(err, requestplane.ErrServerClosed) {
		t.Errorf("Handle after Close = %v, want ErrServerClosed", err)
	}
}

// An answer that was complete before the server closed is not lost with it: that
// is what a drain relies on.
func testServerCloseKeepsFinished(t *testing.T, newPlane Make) {
	for range 20 {
		p := newTestPlane(t, newPlane, requestplane.Limits{})
		remove := p.handle("1/count", count)
		const n = 50
		st := p.call("1/count", item{N: n})
		p.recv(st) // it has begun
		if err := remove(p.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := p.server.Close(); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < n; i++ {
			if got := p.recvFast(st); got.N != i+1 {
				t.Fatalf("item = %+v, want %d", got, i+1)
			}
		}
		if err := p.recvErr(st); err != io.EOF {
			t.Fatalf("end = %v, want io.EOF", err)
		}
	}
}

func testCloseTwice(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	p.recv(p.call("1/echo", item{N: 1}))
	for range 2 {
		if err := p.client.Close(); err != nil {
			t.Error(err)
		}
		if err := p.server.Close(); err != nil {
			t.Error(err)
		}
	}
}
