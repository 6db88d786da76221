package requestplane_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Connections that died leave nothing behind, on either side, although each had streams
// of which the other side had not answered the end: those are what the multiplexer would
// keep for minutes, and with a stream it keeps the whole session.
func TestTCPDeadConnectionsLeaveNothing(t *testing.T) {
	const (
		connections = 40
		left        = 16 << 10 // bytes for each, far below the buffers of a session
	)
	s := listen(t, requestplane.ServerConfig{})
	finish := make(chan struct{})
	handle(t, s, "1/finish", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send("running"); err != nil {
			return err
		}
		<-finish
		return nil
	})
	p := newProxy(t, s.Addr())
	c := newClient(t, requestplane.ClientConfig{})
	die := func() {
		var st requestplane.Stream
		patience.Until(t, "a call starts", func() bool { // the client may not have seen yet that the last connection died
			var err error
			if st, err = c.Call(t.Context(), p.addr()+"/1/finish", "r", nil, nil); err != nil {
				return false
			}
			return st.Recv(t.Context(), nil) == nil
		})
		p.Freeze()
		finish <- struct{}{} // the server closes its side of the stream
		st.Close()           // so does the caller, and neither hears of it
		patience.Until(t, "the handler has returned", func() bool { return s.InFlight("1/finish") == 0 })
		p.Reset()
		p.Heal()
		patience.Until(t, "the connection is closed", func() bool { return p.Open() == 0 })
	}
	die() // what is made once is made now
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	for range connections {
		die()
	}
	var grown int64
	patience.Until(t, "the sessions are freed", func() bool {
		if runtime.NumGoroutine() > goroutines {
			return false
		}
		grown = int64(liveHeap()) - int64(heap)
		return grown < connections*left
	})
	t.Logf("%d bytes are left of %d connections", grown, connections)
}

// A caller that never closes its side of streams loses the connection, not the server
// its memory.
func TestTCPCallerNeverCloses(t *testing.T) {
	checkLeaks(t)
	s := listen(t, requestplane.ServerConfig{Limits: requestplane.Limits{MaxInFlight: 1}})
	sess := mux(t, s.Addr())
	var opened int
	for ; !sess.IsClosed(); opened++ {
		st, err := sess.OpenStream()
		if err != nil {
			break
		}
		if _, err := st.Write([]byte(frame(2, "x"))); err != nil {
			break
		}
		// The refusal, after which the server has closed its side.
		if _, err := io.Copy(io.Discard, st); err != nil {
			break
		}
		if opened > 10_000 {
			t.Fatalf("%d streams are open", sess.NumStreams())
		}
	}
	if opened < 1000 {
		t.Errorf("the connection ended after %d streams", opened)
	}
	handle(t, s, "1/echo", echo)
	if err := ask(t.Context(), newClient(t, requestplane.ClientConfig{}), s.Addr()+"/1/echo", "fine"); err != nil {
		t.Error(err)
	}
}

// A server that never closes its side of streams is left for a fresh connection.
func TestTCPServerNeverCloses(t *testing.T) {
	checkLeaks(t)
	var connections atomic.Int64
	addr := serveOnce(t, func(conn net.Conn) {
		connections.Add(1)
		if !welcome(conn) {
			return
		}
		sess, err := yamux.Server(conn, quietMux())
		if err != nil {
			return
		}
		defer sess.Close()
		for {
			st, err := sess.Accept()
			if err != nil {
				return
			}
			io.WriteString(st, frame(3, "")) // the answer is complete
		}
	})
	c := newClient(t, requestplane.ClientConfig{})
	calls := 0
	for ; connections.Load() < 2; calls++ {
		st, err := c.Call(t.Context(), addr+"/1/echo", "r", nil, nil)
		if err != nil {
			t.Fatalf("call %d: %v", calls, err)
		}
		if err := st.Recv(t.Context(), nil); err != io.EOF {
			t.Fatalf("call %d: %v", calls, err)
		}
		if calls > 100_000 {
			t.Fatal("the connection is still in use")
		}
	}
	if calls < 10_000 {
		t.Errorf("the connection was given up after %d calls", calls)
	}
}

// liveHeap returns the number of bytes that are still reachable.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
