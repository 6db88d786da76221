package bench

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/undo"
)

const (
	caseRawRequest = "NATS alone, request and reply"
	caseRawPublish = "NATS alone, publish to subscriber"
	rawMessage     = 64 // bytes of a request, as those of plain TCP
)

// natsServer is an embedded NATS server as in a dynamod, for connections of two processes.
type natsServer struct {
	addr string
	id   dial.Identity
	back undo.Stack
}

func newNATSServer(ctx context.Context, s *session) (*natsServer, error) {
	n := &natsServer{id: dial.Identity{User: "bench", Secret: credentials.New()}}
	creds, err := embedded.NewCredentials(n.id.Secret)
	if err != nil {
		return nil, err
	}
	srv, err := embedded.StartNATS(ctx, embedded.NATSOptions{Dir: filepath.Join(s.tmp, "nats-plane"), Addr: "127.0.0.1:0", Credentials: creds, Log: s.log})
	if err != nil {
		return nil, err
	}
	n.back.Push("stop NATS", func(context.Context) error { return srv.Close() })
	n.addr = srv.Addr()
	return n, nil
}

// hub returns pipes of another process.
func (n *natsServer) hub(s *session) (*natspipe.Hub, error) {
	bus, err := dial.NATS(config.NATSClient{}, config.SchemeDynamod+n.addr, "bench", n.id, s.log)
	if err != nil {
		return nil, err
	}
	n.back.Push("close the NATS connection", func(context.Context) error { return bus.Close() })
	hub := natspipe.New(bus, natspipe.Config{Log: s.log})
	n.back.Push("close the pipes", func(context.Context) error { return hub.Close() })
	return hub, nil
}

// rawNATS returns a connection of the client library, which the server lets in as it does
// nodes.
func rawNATS(addr string, id dial.Identity) (*nats.Conn, error) {
	secure, err := id.Secret.ClientTLS(id.User)
	if err != nil {
		return nil, err
	}
	opts, err := natsconn.Config{Name: "bench", TLSFirst: true, TLS: func() *tls.Config { return secure }}.Options()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect("tls://"+addr, opts...)
	if err != nil {
		return nil, err
	}
	if err := nc.FlushTimeout(waitForNews); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// rawRequests answers requests on one connection and makes them on another.
func (n *natsServer) rawRequests() (request func() error, err error) {
	var conns [2]*nats.Conn
	for i := range conns {
		if conns[i], err = rawNATS(n.addr, n.id); err != nil {
			return nil, err
		}
		nc := conns[i]
		n.back.Push("close the NATS connection", func(context.Context) error { nc.Close(); return nil })
	}
	if _, err := conns[0].Subscribe("bench.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil { // a lost answer is a timeout
		return nil, err
	}
	if err := conns[0].FlushTimeout(waitForNews); err != nil {
		return nil, err
	}
	body := make([]byte, rawMessage)
	return func() error {
		_, err := conns[1].Request("bench.echo", body, waitForNews)
		return err
	}, nil
}

// rawPublish publishes on a connection and receives on the same one, as the event plane does
// in this benchmark.
func rawPublish(addr string, id dial.Identity, back *undo.Stack) (publish func() error, err error) {
	nc, err := rawNATS(addr, id)
	if err != nil {
		return nil, err
	}
	back.Push("close the NATS connection", func(context.Context) error { nc.Close(); return nil })
	arrived := make(chan struct{}, 1)
	if _, err := nc.Subscribe("bench.news", func(*nats.Msg) { arrived <- struct{}{} }); err != nil {
		return nil, err
	}
	value := make([]byte, valueBytes)
	limit := time.NewTimer(waitForNews)
	return func() error {
		if err := nc.Publish("bench.news", value); err != nil {
			return err
		}
		limit.Reset(waitForNews)
		select {
		case <-arrived:
			return nil
		case <-limit.C:
			return errNoNews
		}
	}, nil
}
