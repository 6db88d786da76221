package natspipe

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/natspipe/natspipetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// lively notices fast that a peer is gone, and not that it is silent: on a busy machine, all
// are for a while.
var lively = Config{Beat: 20 * time.Millisecond, Missed: 1 << 20}

type natsServer struct {
	*natspipetest.Server
	t testing.TB
}

func startServer(t testing.TB, opts server.Options) *natsServer {
	t.Helper()
	return &natsServer{natspipetest.Start(t, opts), t}
}

func (s *natsServer) hub(cfg Config) *Hub {
	s.t.Helper()
	h := New(natspipetest.Bus(s.t, s.URL()), cfg)
	s.t.Cleanup(func() { _ = h.Close() })
	return h
}

// pair returns the two ends of a pipe between two processes' hubs.
func pair(t testing.TB, s *natsServer, cfg Config) (dialed, accepted *Conn) {
	t.Helper()
	ln, err := s.hub(cfg).Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, s.hub(cfg), ln)
}

func connect(t testing.TB, from *Hub, ln *Listener) (dialed, accepted *Conn) {
	t.Helper()
	dialed, err := from.Dial(t.Context(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	got, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return dialed, got.(*Conn)
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
