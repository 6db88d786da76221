// Package natspipetest runs NATS servers for tests of what uses pipes.
//
// Start with [Start]. The test owns the server, which ends with it.
package natspipetest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natsconn"
)

const ready = 30 * time.Second

// Server is a NATS server on loopback that can be stopped and started again at its address.
type Server struct {
	t    testing.TB
	opts server.Options
	srv  *server.Server
}

// Start starts a server with some options.
func Start(t testing.TB, opts server.Options) *Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoLog, opts.NoSigs = "127.0.0.1", -1, true, true
	s := &Server{t: t, opts: opts}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Restart starts a server that was stopped.
func (s *Server) Restart() {
	s.t.Helper()
	opts := s.opts // which the server changes
	var err error
	if s.srv, err = server.NewServer(&opts); err != nil {
		s.t.Fatal(err)
	}
	s.srv.Start()
	if !s.srv.ReadyForConnections(ready) {
		s.t.Fatal("the NATS server is not ready")
	}
	addr, ok := s.srv.Addr().(*net.TCPAddr)
	if !ok {
		s.t.Fatal("the NATS server has no port")
	}
	s.opts.Port = addr.Port
}

// Stop ends the server and waits for that. Messages in it are lost.
func (s *Server) Stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// URL is the address of the server.
func (s *Server) URL() string { return "nats://127.0.0.1:" + strconv.Itoa(s.opts.Port) }

// SlowConsumers is the number of clients that did not read fast enough.
func (s *Server) SlowConsumers() int64 { return s.srv.NumSlowConsumers() }

// Bus returns a connection to a server, as another process has one. It ends with the test.
func Bus(t testing.TB, url string) *events.NATS {
	t.Helper()
	bus, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: url, Name: t.Name()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}
