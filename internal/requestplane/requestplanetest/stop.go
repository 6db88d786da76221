package requestplanetest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/dynctl/dynctl/internal/requestplane"
)

// untilStopped sends 1, waits to be stopped, sends 2 and returns.
func untilStopped(ctx context.Context, req *requestplane.Request, send func(any) error) error {
	if err := send(item{N: 1}); err != nil {
		return err
	}
	select {
	case <-req.Stop:
		return send(item{N: 2})
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A handler that is stopped sends what it has, and its answer is complete. Others go on.
func testStop(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/stop", untilStopped)
	for range 20 {
		other, st := p.call("1/stop", nil), p.call("1/stop", nil)
		p.recv(other)
		p.recv(st)
		st.Stop()
		st.Stop()
		if got := p.recv(st); got.N != 2 {
			t.Fatalf("item = %+v, want 2", got)
		}
		if err := p.recvErr(st); err != io.EOF {
			t.Fatalf("end = %v, want io.EOF", err)
		}
		st.Stop() // says nothing any more
		if n := p.server.InFlight("1/stop"); n != 1 {
			p.until("only the other request runs", func() bool { return p.server.InFlight("1/stop") == 1 })
		}
		other.Close()
		p.until("the other request leaves", func() bool { return p.server.InFlight("1/stop") == 0 })
	}
}

// A stop that comes with the request, before its handler runs, is not lost.
func testStopAtOnce(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/stop", untilStopped)
	for range 100 {
		st := p.call("1/stop", nil)
		st.Stop()
		for n := 1; n <= 2; n++ {
			if got := p.recv(st); got.N != n {
				t.Fatalf("item = %+v, want %d", got, n)
			}
		}
		if err := p.recvErr(st); err != io.EOF {
			t.Fatalf("end = %v, want io.EOF", err)
		}
	}
}

// After a stop, a caller can still leave: that drops the handler.
func testStopThenClose(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	stopped := make(chan struct{})
	g := newGate()
	p.handle("1/stubborn", func(ctx context.Context, req *requestplane.Request, send func(any) error) error {
		go func() {
			select {
			case <-req.Stop:
				close(stopped)
			case <-ctx.Done():
			}
		}()
		return g.handle(ctx, req, send)
	})
	st := p.call("1/stubborn", nil)
	p.recv(st)
	st.Stop()
	p.wait("the stop", stopped)
	select {
	case err := <-g.cause:
		t.Fatalf("the context of a handler that was asked to stop ended: %v", err)
	default:
	}
	st.Close()
	if err := p.stopped(g); !errors.Is(err, requestplane.ErrStopped) {
		t.Errorf("handler's cause = %v, want ErrStopped", err)
	}
}
