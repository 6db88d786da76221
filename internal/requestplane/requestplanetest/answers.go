package requestplanetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/requestplane"
)

// echo sends the body back as one item.
func echo(_ context.Context, req *requestplane.Request, send func(any) error) error {
	var it item
	if err := req.Decode(&it); err != nil {
		return err
	}
	return send(it)
}

// count sends the items 1 to N of its body.
func count(_ context.Context, req *requestplane.Request, send func(any) error) error {
	var it item
	if err := req.Decode(&it); err != nil {
		return err
	}
	for i := range it.N {
		if err := send(item{N: i + 1}); err != nil {
			return err
		}
	}
	return nil
}

func testUnary(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	for i := range 100 {
		st := p.call("1/echo", item{N: i, Text: "hello"})
		if got, want := p.recv(st), (item{N: i, Text: "hello"}); got != want {
			t.Fatalf("item = %+v, want %+v", got, want)
		}
		if err := p.recvErr(st); err != io.EOF {
			t.Fatalf("end = %v, want io.EOF", err)
		}
	}
}

func testStream(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/count", count)
	const n = 20000
	st := p.call("1/count", item{N: n})
	for i := range n {
		if got := p.recvFast(st); got.N != i+1 {
			t.Fatalf("item %d = %+v", i+1, got)
		}
	}
	if err := p.recvErr(st); err != io.EOF {
		t.Fatalf("end = %v, want io.EOF", err)
	}
}

// recvFast is recv without a context per item.
func (p *plane) recvFast(st requestplane.Stream) item {
	var it item
	if err := st.Recv(p.Context(), &it); err != nil {
		p.Fatalf("Recv: %v", err)
	}
	return it
}

func testRequestFields(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	got := make(chan *requestplane.Request, 1)
	p.handle("a1/b/c d", func(_ context.Context, req *requestplane.Request, _ func(any) error) error {
		got <- req
		return nil
	})
	headers := map[string]string{"traceparent": "00-1", "empty": ""}
	st, err := p.client.Call(p.ctx(), p.addr("a1/b/c d"), "request-ü", headers, item{N: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.recvErr(st); err != io.EOF {
		t.Fatalf("end = %v, want io.EOF", err)
	}
	req := <-got
	if req.ID != "request-ü" || req.Path != "a1/b/c d" || !reflect.DeepEqual(req.Headers, headers) {
		t.Errorf("request = %+v", req)
	}
	var it item
	if err := req.Decode(&it); err != nil || it.N != 7 {
		t.Errorf("Decode = %+v, %v", it, err)
	}
}

// A codec that leaves out zero values must not let an item inherit the fields of
// the one before it.
func testZeroValues(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/two", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send(item{N: 1, Text: "first"}); err != nil {
			return err
		}
		return send(item{N: 2})
	})
	st := p.call("1/two", nil)
	var it item
	for range 2 {
		if err := st.Recv(p.ctx(), &it); err != nil {
			t.Fatal(err)
		}
	}
	if want := (item{N: 2}); it != want {
		t.Errorf("second item = %+v, want %+v", it, want)
	}
}

func testRaw(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/raw", func(_ context.Context, req *requestplane.Request, send func(any) error) error {
		return send(requestplane.Raw(req.Body))
	})
	st := p.call("1/raw", item{N: 5})
	var raw requestplane.Raw
	if err := st.Recv(p.ctx(), &raw); err != nil {
		t.Fatal(err)
	}
	var it item
	if err := (&requestplane.Request{Body: raw}).Decode(&it); err != nil || it.N != 5 {
		t.Errorf("raw item decodes to %+v, %v", it, err)
	}
}

func testSkipItem(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/count", count)
	st := p.call("1/count", item{N: 2})
	if err := st.Recv(p.ctx(), nil); err != nil {
		t.Fatal(err)
	}
	if got := p.recv(st); got.N != 2 {
		t.Errorf("item = %+v, want 2", got)
	}
}

func testLargeMessages(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	for _, size := range []int{0, 1, 4000, 4096, 65536, 262144, 3 << 20} {
		text := strings.Repeat("x", size)
		st := p.call("1/echo", item{N: size, Text: text})
		if got := p.recv(st); got.N != size || got.Text != text {
			t.Fatalf("size %d: got %d, %d bytes", size, got.N, len(got.Text))
		}
		if err := p.recvErr(st); err != io.EOF {
			t.Fatalf("size %d: end = %v", size, err)
		}
	}
}

func testTooLarge(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{MaxMessage: 100_000})
	p.handle("1/echo", echo)
	sendErr := make(chan error, 1)
	p.handle("1/large", func(_ context.Context, req *requestplane.Request, send func(any) error) error {
		err := send(requestplane.Raw(bytes.Repeat([]byte{1}, 200_000)))
		sendErr <- err
		return err
	})
	t.Run("request over the server's limit", func(t *testing.T) {
		st := p.call("1/echo", item{Text: strings.Repeat("x", 5_000_000)})
		wantKind(t, p.recvErr(st), requestplane.KindInvalidArgument)
	})
	t.Run("request over the client's limit", func(t *testing.T) {
		_, err := p.client.Call(p.ctx(), p.addr("1/echo"), "r", nil, requestplane.Raw(make([]byte, requestplane.DefaultMaxMessage)))
		if !errors.Is(err, requestplane.ErrTooLarge) {
			t.Errorf("Call = %v, want ErrTooLarge", err)
		}
	})
	t.Run("item", func(t *testing.T) {
		st := p.call("1/large", nil)
		wantKind(t, p.recvErr(st), requestplane.KindInternal)
		if err := <-sendErr; !errors.Is(err, requestplane.ErrTooLarge) {
			t.Errorf("send = %v, want ErrTooLarge", err)
		}
	})
	st := p.call("1/echo", item{N: 1}) // the connection survived
	if got := p.recv(st); got.N != 1 {
		t.Errorf("item = %+v", got)
	}
}

func testEmptyAnswer(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/none", func(_ context.Context, req *requestplane.Request, _ func(any) error) error {
		if len(req.Body) != 0 {
			return fmt.Errorf("body of %d bytes", len(req.Body))
		}
		return nil
	})
	if err := p.recvErr(p.call("1/none", nil)); err != io.EOF {
		t.Errorf("end = %v, want io.EOF", err)
	}
}

func testConcurrentStreams(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/count", count)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			const n = 300
			st, err := p.client.Call(t.Context(), p.addr("1/count"), "r", nil, item{N: n})
			if err != nil {
				t.Error(err)
				return
			}
			defer st.Close()
			var it item
			for i := range n {
				if err := st.Recv(t.Context(), &it); err != nil || it.N != i+1 {
					t.Errorf("item %d = %+v, %v", i+1, it, err)
					return
				}
			}
			if err := st.Recv(t.Context(), &it); err != io.EOF {
				t.Errorf("end = %v, want io.EOF", err)
			}
		})
	}
	wg.Wait()
}

func testEndRepeats(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/count", count)
	st := p.call("1/count", item{N: 0})
	for range 3 {
		if err := p.recvErr(st); err != io.EOF {
			t.Errorf("end = %v, want io.EOF", err)
		}
	}
	st.Close()
	if err := p.recvErr(st); err != io.EOF {
		t.Errorf("after Close: end = %v, want io.EOF", err)
	}
}

func wantKind(t *testing.T, err error, kind requestplane.Kind) *requestplane.RemoteError {
	t.Helper()
	var re *requestplane.RemoteError
	if !errors.As(err, &re) || re.Kind != kind {
		t.Fatalf("error = %v, want a RemoteError of kind %s", err, kind)
	}
	return re
}

func testHandlerErrors(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	remote := func(k requestplane.Kind) error { return &requestplane.RemoteError{Kind: k, Message: "m"} }
	tests := []struct {
		name string
		err  error
		kind requestplane.Kind
		is   error
		not  error
	}{
		{"plain", errors.New("boom"), requestplane.KindInternal, nil, requestplane.ErrOverloaded},
		{"invalid", remote(requestplane.KindInvalidArgument), requestplane.KindInvalidArgument, nil, nil},
		{"wrapped", fmt.Errorf("in here: %w", remote(requestplane.KindInvalidArgument)), requestplane.KindInvalidArgument, nil, nil},
		{"overloaded", remote(requestplane.KindOverloaded), requestplane.KindOverloaded, requestplane.ErrOverloaded, nil},
		{"overloaded sentinel", fmt.Errorf("no blocks: %w", requestplane.ErrOverloaded), requestplane.KindOverloaded, requestplane.ErrOverloaded, nil},
		{"unavailable", remote(requestplane.KindUnavailable), requestplane.KindUnavailable, nil, nil},
		// Refusals of a server further on are not refusals of this one.
		{"nested unknown", remote(requestplane.KindUnknownEndpoint), requestplane.KindUnavailable, nil, requestplane.ErrUnknownEndpoint},
		{"nested draining", remote(requestplane.KindDraining), requestplane.KindUnavailable, nil, requestplane.ErrDraining},
		{"nested incomplete", requestplane.ErrIncomplete, requestplane.KindUnavailable, nil, requestplane.ErrDisconnected},
		{"canceled by itself", context.Canceled, requestplane.KindInternal, nil, nil},
		{"long", errors.New(strings.Repeat("x", 1<<20)), requestplane.KindInternal, nil, nil},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := fmt.Sprintf("1/e%d", i)
			p.handle(path, func(context.Context, *requestplane.Request, func(any) error) error { return test.err })
			err := p.recvErr(p.call(path, nil))
			wantKind(t, err, test.kind)
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("errors.Is(%v, %v) = false", err, test.is)
			}
			if test.not != nil && errors.Is(err, test.not) {
				t.Errorf("errors.Is(%v, %v) = true", err, test.not)
			}
		})
	}
}

func testErrorAfterItems(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/fail", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		for i := range 10 {
			if err := send(item{N: i}); err != nil {
				return err
			}
		}
		return errors.New("boom")
	})
	st := p.call("1/fail", nil)
	for i := range 10 {
		if got := p.recv(st); got.N != i {
			t.Fatalf("item = %+v, want %d", got, i)
		}
	}
	for range 2 {
		if re := wantKind(t, p.recvErr(st), requestplane.KindInternal); re.Message != "boom" {
			t.Errorf("message = %q", re.Message)
		}
	}
}

func testHandlerPanic(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/panic", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send(item{N: 1}); err != nil {
			return err
		}
		panic("secret")
	})
	p.handle("1/echo", echo)
	st := p.call("1/panic", nil)
	p.recv(st)
	if re := wantKind(t, p.recvErr(st), requestplane.KindInternal); strings.Contains(re.Message, "secret") {
		t.Errorf("message %q gives the panic value away", re.Message)
	}
	if n := p.server.InFlight("1/panic"); n != 0 {
		p.until("panicked request leaves", func() bool { return p.server.InFlight("1/panic") == 0 })
	}
	if got := p.recv(p.call("1/echo", item{N: 3})); got.N != 3 {
		t.Errorf("item = %+v", got)
	}
}

func testHandlerGoexit(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/exit", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		runtime.Goexit()
		return nil
	})
	if err := p.recvErr(p.call("1/exit", nil)); !errors.Is(err, requestplane.ErrIncomplete) {
		t.Errorf("end = %v, want ErrIncomplete", err)
	}
	p.until("request leaves", func() bool { return p.server.InFlight("1/exit") == 0 })
}

func testBadBody(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/echo", echo)
	for _, body := range []any{"a string", requestplane.Raw{0xc1}, nil, []int{1}} {
		wantKind(t, p.recvErr(p.call("1/echo", body)), requestplane.KindInvalidArgument)
	}
}

func testBadItem(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/mixed", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send("not an item"); err != nil {
			return err
		}
		return send(item{N: 2})
	})
	st := p.call("1/mixed", nil)
	if err := p.recvErr(st); errors.Is(err, requestplane.ErrIncomplete) || err == io.EOF {
		t.Errorf("undecodable item = %v", err)
	}
	if got := p.recv(st); got.N != 2 { // the stream goes on
		t.Errorf("item = %+v", got)
	}
}

// The final marker says that every item is there, whatever the handler returns.
func testLostItem(t *testing.T, newPlane Make) {
	p := newTestPlane(t, newPlane, requestplane.Limits{})
	p.handle("1/lose", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		send(item{N: 1})
		send(make(chan int)) // cannot be encoded
		send(item{N: 3})
		return nil
	})
	st := p.call("1/lose", nil)
	p.recv(st)
	p.recv(st)
	wantKind(t, p.recvErr(st), requestplane.KindInternal)
}
