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
	o = o.withDefaults()
	if o.TLS != nil && !o.TLS.InsecureSkipVerify {
		o.TLS = mutual(o.TLS)
	}
	return &transport{
		opts: o, sessions: map[uint64]*session{}, inbound: map[inboundKey]*inbound{}, greeting: map[net.Conn]struct{}{},
	}
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

	strangers handshake.Lobby // connections in their handshake
	refusals  handshake.Refusals

	mu       sync.Mutex
	closed   bool
	sessions map[uint64]*session // by generation
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
	ln, err := net.Listen("tcp", t.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	addr, err := advertised(ln.Addr().String(), t.opts.AdvertiseHost)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ln = ln
	t.wg.Go(t.accept)
	return connInfo{token: t.token, tls: t.opts.TLS != nil, addr: addr}.encode(), nil
}

// spoken is what follows the handshake.
var spoken = handshake.Protocol{Name: "dnxtcp", Version: 3}

func (t *transport) shake(secure *tls.Config) handshake.Options {
	return handshake.Options{Protocol: spoken, Key: t.host.Key(), TLS: secure}
}

// advertised is the address peers are told.
func advertised(listen, host string) (string, error) {
	lh, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("listen address %q: %w", listen, err)
	}
	if host == "" {
		if ip := net.ParseIP(lh); ip == nil || ip.IsUnspecified() {
			return "", fmt.Errorf("listen on %q: peers need a host name to connect to: %w", listen, nixl.ErrInvalidParam)
		}
		host = lh
	}
	if len(host) > 255 {
		return "", fmt.Errorf("advertised host of %d bytes: %w", len(host), nixl.ErrInvalidParam)
	}
	return net.JoinHostPort(host, port), nil
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
		return "", fmt.Errorf("peer speaks TLS only, and this agent has no certificate: %w", nixl.ErrMismatch)
	case !info.tls && t.opts.TLS != nil:
		return "", fmt.Errorf("peer does not speak TLS, which this agent asks for: %w", nixl.ErrMismatch)
	}
	where := "another host"
	if own := t.host.Self().HostID; own != "" && own == r.HostID {
		where = "another process of this host"
	}
	if info.tls {
		where += ", with TLS,"
	}
	return where + " at " + info.addr, nil
}

func (t *transport) Attach(r nixl.Remote) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.sessions[r.Generation] = newSession(t, r)
	}
}

func (t *transport) session(r nixl.Remote) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("transport is closed: %w", nixl.ErrCanceled)
	}
	s := t.sessions[r.Generation]
	if s == nil {
		return nil, fmt.Errorf("peer %q was invalidated or lost: %w", r.Name, nixl.ErrNotFound)
	}
	if !s.started {
		s.started = true
		t.wg.Go(s.run)
	}
	return s, nil
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
	t.mu.Lock()
	s := t.sessions[r.Generation]
	delete(t.sessions, r.Generation)
	t.mu.Unlock()
	if s != nil {
		s.stop(cause)
	}
}

func (t *transport) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	sessions, inbound := t.sessions, make([]*inbound, 0, len(t.inbound))
	t.sessions = nil
	for _, in := range t.inbound {
		inbound = append(inbound, in)
	}
	ln := t.ln
	t.mu.Unlock()
	if first && ln != nil {
		_ = ln.Close()
	}
	for _, s := range sessions {
		s.stop(fmt.Errorf("agent closes: %w", nixl.ErrCanceled))
	}
	for _, in := range inbound {
		in.bye("agent closes")
	}
	t.mu.Lock()
	for nc := range t.greeting {
		_ = nc.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return nil
}
