package tcp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// New returns a transport for one agent, to be put into its Config.
func New(o Options) nixl.Transport {
	return &transport{opts: o.withDefaults(), inbound: map[inboundKey]*inbound{}, greeting: map[net.Conn]struct{}{}}
}

// transport is the tcp transport of one agent.
//
// Lock order: xfer.mu, session.mu, initiator.pm, conn.mu. gate.mu is taken last;
// what a gate calls when it is quiet runs without it. inbound.mu is taken before
// transport.mu and conn.mu. The Host is called with no
// lock but inbound.mu, Jobs with none.
type transport struct {
	opts  Options
	host  nixl.Host
	token secret
	ln    net.Listener
	wg    sync.WaitGroup // accept loop, sessions, inbound connections

	sessions  wire.Sessions[*session]
	strangers handshake.Lobby // connections in their handshake
	refusals  handshake.Refusals

	mu       sync.Mutex
	closed   bool
	inbound  map[inboundKey]*inbound
	accepted int                   // inbound connections
	greeting map[net.Conn]struct{} // those that have not said hello
}

func (t *transport) Name() string { return Name }

func (t *transport) Start(h nixl.Host) ([]byte, error) {
	t.host = h
	if h.Key().IsZero() {
		return nil, wire.HandshakeError(handshake.ErrNoKey)
	}
	rand.Read(t.token[:]) // never fails
	ln, addr, err := wire.Listen(t.opts.Listen, t.opts.AdvertiseHost)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ln = ln
	t.wg.Go(func() { wire.Accept(ln, h.Log(), Name, nil, t.admit) })
	return connInfo{token: t.token, tls: t.opts.TLS != nil, addr: addr}.encode(), nil
}

// spoken is the protocol after the handshake.
var spoken = handshake.Protocol{Name: "dnxtcp", Version: 3}

func (t *transport) shake(secure *tls.Config) handshake.Options {
	return handshake.Options{Protocol: spoken, Key: t.host.Key(), TLS: secure}
}

func (t *transport) Reach(r nixl.Remote) (string, error) {
	if r.Conn == nil {
		return "", fmt.Errorf("peer does not offer it: %w", nixl.ErrNotSupported)
	}
	info, err := parseConnInfo(r.Conn)
	if err != nil {
		return "", err
	}
	switch {
	case info.tls && t.opts.TLS == nil:
		return "", fmt.Errorf("peer requires TLS, and this agent has no certificate: %w", nixl.ErrMismatch)
	case !info.tls && t.opts.TLS != nil:
		return "", fmt.Errorf("this agent requires TLS, and the peer does not offer it: %w", nixl.ErrMismatch)
	}
	where := wire.Where(t.host.Self(), r)
	if info.tls {
		where += ", with TLS,"
	}
	return where + " at " + info.addr, nil
}

func (t *transport) Attach(r nixl.Remote) { t.sessions.Attach(r, newSession(t, r)) }

func (t *transport) session(r nixl.Remote) (*session, error) {
	return t.sessions.Use(r, func(s *session) {
		if !s.started {
			s.started = true
			t.wg.Go(s.run)
		}
	})
}

func (t *transport) Submit(r nixl.Remote, j *nixl.Job) {
	s, err := t.session(r)
	if err != nil {
		j.Finish(err)
		return
	}
	s.submit(j)
}

func (t *transport) Notify(ctx context.Context, r nixl.Remote, msg []byte) error {
	s, err := t.session(r)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	n := s.notify(msg, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		s.unqueue(n)
		return fmt.Errorf("peer has not accepted it: %w", nixl.ErrCanceled)
	}
}

func (t *transport) OpenProbe(ctx context.Context, r nixl.Remote) (nixl.Probe, error) {
	s, err := t.session(r)
	if err != nil {
		return nixl.Probe{}, err
	}
	return s.openProbe(ctx)
}

func (t *transport) CloseProbe(r nixl.Remote, id nixl.TicketID) {
	if s, err := t.session(r); err == nil {
		s.closeProbe(id)
	}
}

func (t *transport) Disconnect(r nixl.Remote, cause error) {
	if s, found := t.sessions.Forget(r); found {
		s.stop(cause)
	}
}

func (t *transport) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	inbound := make([]*inbound, 0, len(t.inbound))
	for _, in := range t.inbound {
		inbound = append(inbound, in)
	}
	ln := t.ln
	t.mu.Unlock()
	if first && ln != nil {
		_ = ln.Close()
	}
	for _, s := range t.sessions.Close() {
		s.stop(fmt.Errorf("agent closes: %w", nixl.ErrCanceled))
	}
	for _, in := range inbound {
		in.bye(wire.AgentCloses)
	}
	t.mu.Lock()
	for nc := range t.greeting {
		_ = nc.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}
