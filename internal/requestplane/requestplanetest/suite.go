package requestplanetest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Make returns a server, and a function that returns clients which reach it. It
// registers their Close with t.Cleanup.
type Make func(t *testing.T, limits requestplane.Limits) (requestplane.Server, func() requestplane.Client)

// limit is that of every wait of the suite.
const limit = 3 * patience.Soon / 2

// Run runs the suite.
func Run(t *testing.T, newPlane Make) {
	tests := []struct {
		name string
		f    func(*testing.T, Make)
	}{
		{"Unary", testUnary},
		{"Stream", testStream},
		{"RequestFields", testRequestFields},
		{"ZeroValues", testZeroValues},
		{"Raw", testRaw},
		{"SkipItem", testSkipItem},
		{"LargeMessages", testLargeMessages},
		{"TooLarge", testTooLarge},
		{"EmptyAnswer", testEmptyAnswer},
		{"ConcurrentStreams", testConcurrentStreams},
		{"EndRepeats", testEndRepeats},

		{"HandlerErrors", testHandlerErrors},
		{"ErrorAfterItems", testErrorAfterItems},
		{"HandlerPanic", testHandlerPanic},
		{"HandlerGoexit", testHandlerGoexit},
		{"BadBody", testBadBody},
		{"BadItem", testBadItem},
		{"LostItem", testLostItem},

		{"UnknownEndpoint", testUnknownEndpoint},
		{"BadAddress", testBadAddress},
		{"NoServer", testNoServer},
		{"EndpointExists", testEndpointExists},
		{"Overloaded", testOverloaded},

		{"CloseCancels", testCloseCancels},
		{"ContextCancels", testContextCancels},
		{"ClientCloseCancels", testClientCloseCancels},
		{"CancelWhileBlocked", testCancelWhileBlocked},
		{"Deadline", testDeadline},
		{"DeadlineOnServer", testDeadlineOnServer},
		{"RecvContext", testRecvContext},
		{"CallAfterCancel", testCallAfterCancel},
		{"CallAfterClose", testCallAfterClose},
		{"BackPressure", testBackPressure},

		{"Stop", testStop},
		{"StopAtOnce", testStopAtOnce},
		{"StopThenClose", testStopThenClose},

		{"Remove", testRemove},
		{"RemoveTimesOut", testRemoveTimesOut},
		{"RemoveThenHandle", testRemoveThenHandle},
		{"InFlight", testInFlight},
		{"ServerCloseIncomplete", testServerCloseIncomplete},
		{"ServerCloseKeepsFinished", testServerCloseKeepsFinished},
		{"CloseTwice", testCloseTwice},
		{"RandomTraffic", testRandomTraffic},
		{"ManyStreams", testManyStreams},
		{"SlowReaders", testSlowReaders},
		{"RetrySafe", testRetrySafe},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.f(t, newPlane) })
	}
}

// item is the message type of the suite's handlers.
type item struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

// plane is one server with one client.
type plane struct {
	*testing.T
	server requestplane.Server
	client requestplane.Client
	more   func() requestplane.Client
}

func newTestPlane(t *testing.T, newPlane Make, limits requestplane.Limits) *plane {
	t.Helper()
	server, clients := newPlane(t, limits)
	return &plane{T: t, server: server, client: clients(), more: clients}
}

// ctx ends before the test binary's patience does.
func (p *plane) ctx() context.Context {
	ctx, cancel := context.WithTimeout(p.Context(), 2*limit)
	p.Cleanup(cancel)
	return ctx
}

func (p *plane) handle(path string, h requestplane.Handler) (remove func(context.Context) error) {
	p.Helper()
	remove, err := p.server.Handle(path, h)
	if err != nil {
		p.Fatalf("Handle(%q): %v", path, err)
	}
	return remove
}

func (p *plane) addr(path string) string { return p.server.Addr() + "/" + path }

func (p *plane) call(path string, body any) requestplane.Stream {
	p.Helper()
	return p.callCtx(p.ctx(), path, body)
}

func (p *plane) callCtx(ctx context.Context, path string, body any) requestplane.Stream {
	p.Helper()
	st, err := p.client.Call(ctx, p.addr(path), "r1", nil, body)
	if err != nil {
		p.Fatalf("Call(%q): %v", path, err)
	}
	p.Cleanup(st.Close)
	return st
}

// recv returns the next item.
func (p *plane) recv(st requestplane.Stream) item {
	p.Helper()
	var it item
	if err := st.Recv(p.ctx(), &it); err != nil {
		p.Fatalf("Recv: %v", err)
	}
	return it
}

// recvErr returns the error of the next Recv, which must not be an item.
func (p *plane) recvErr(st requestplane.Stream) error {
	p.Helper()
	var it item
	err := st.Recv(p.ctx(), &it)
	if err == nil {
		p.Fatalf("Recv = item %+v, want an error", it)
	}
	if err != io.EOF && errors.Is(err, io.EOF) {
		p.Fatalf("Recv = %v, which looks like the end of a complete answer", err)
	}
	return err
}

// wait waits for ch.
func (p *plane) wait(what string, ch <-chan struct{}) {
	p.Helper()
	select {
	case <-ch:
	case <-time.After(limit):
		p.Fatalf("%s: not within %s", what, limit)
	}
}

// until polls for a condition.
func (p *plane) until(what string, ok func() bool) {
	p.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// gate is a handler that reports when it runs and why it was told to stop.
type gate struct {
	entered chan struct{}  // one value for each request
	release chan struct{}  // close it to let the handlers return
	cause   chan error     // one value for each handler that was told to stop
	at      chan time.Time // when it was told
}

func newGate() *gate {
	return &gate{
		entered: make(chan struct{}, 1000),
		release: make(chan struct{}),
		cause:   make(chan error, 1000),
		at:      make(chan time.Time, 1000),
	}
}

func (g *gate) handle(ctx context.Context, req *requestplane.Request, send func(any) error) error {
	if err := send(item{Text: "entered"}); err != nil {
		return err
	}
	g.entered <- struct{}{}
	select {
	case <-g.release:
		return nil
	case <-ctx.Done():
		g.at <- time.Now()
		g.cause <- context.Cause(ctx)
		return context.Cause(ctx)
	}
}

// stopped returns why a handler was told to stop.
func (p *plane) stopped(g *gate) error {
	p.Helper()
	select {
	case err := <-g.cause:
		return err
	case <-time.After(limit):
		p.Fatalf("handler not told to stop within %s", limit)
		return nil
	}
}
