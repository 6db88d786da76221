//go:build linux

package fenced

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"runtime"
	"sync"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// Pool bounds how many goroutines of a process copy at the same time, for all its
// agents, so that transfers do not take every core from computing.
type Pool struct{ slots chan struct{} }

// NewPool returns a pool of copies goroutines; zero means half of the processors,
// at least 2.
func NewPool(copies int) *Pool {
	if copies <= 0 {
		copies = max(2, runtime.GOMAXPROCS(0)/2)
	}
	return &Pool{slots: make(chan struct{}, copies)}
}

// Transport returns a transport for one agent, to be put into its Config. The Method
// is its own.
func (p *Pool) Transport(m Method, o Options) nixl.Transport {
	t := &transport{
		pool: p, method: m, opts: o.withDefaults(),
		inbound: map[*inbound]struct{}{}, greeting: map[net.Conn]struct{}{},
	}
	if dm, ok := m.(DeviceMethod); ok {
		return &deviceTransport{t, dm}
	}
	return t
}

// deviceTransport is one that reaches memory of devices.
type deviceTransport struct {
	*transport
	devices DeviceMethod
}

var _ nixl.DeviceTransport = (*deviceTransport)(nil)

func (t *deviceTransport) Direct(m nixl.DeviceMemory) bool { return t.devices.Direct(m) }

// transport is the transport of one agent.
//
// Lock order: inbound.mu, transport.mu, conn.mu; session.mu, conn.mu. A Grant is
// released under inbound.mu; the Host is called under no other lock, Jobs under none.
type transport struct {
	pool   *Pool
	method Method
	opts   Options
	host   nixl.Host
	place  place
	token  secret
	ln     *net.UnixListener // nil: peers cannot reach this agent
	why    error             // why ln is nil
	wg     sync.WaitGroup    // accept loop, sessions, jobs, inbound connections

	sessions  wire.Sessions[*session]
	strangers handshake.Lobby // connections in their handshake
	refusals  handshake.Refusals

	mu       sync.Mutex
	closed   bool
	closing  chan struct{} // closed by Close; made by Start
	inbound  map[*inbound]struct{}
	greeting map[net.Conn]struct{}
}

var (
	_ nixl.RegionObserver  = (*transport)(nil)
	_ nixl.UsableTransport = (*transport)(nil)
)

func (t *transport) Name() string { return t.method.Name() }

// Start listens. Where the system does not allow what sharing needs, the agent
// works without: peers choose another transport.
func (t *transport) Start(h nixl.Host) ([]byte, error) {
	t.host = h
	if h.Key().IsZero() {
		return nil, wire.HandshakeError(handshake.ErrNoKey)
	}
	t.mu.Lock()
	t.closing = make(chan struct{})
	t.mu.Unlock()
	info, err := t.listen()
	if err != nil {
		t.why = err
		h.Log().Warn("nixl memory is not offered to other processes of this machine", "transport", t.Name(), "error", err)
		return nil, nil
	}
	return info.encode(), nil
}

// Usable implements nixl.UsableTransport.
func (t *transport) Usable() error { return t.why }

func (t *transport) listen() (connInfo, error) {
	if err := usable(); err != nil {
		return connInfo{}, err
	}
	at, err := here()
	if err != nil {
		return connInfo{}, fmt.Errorf("where this process runs: %w", err)
	}
	offer, err := t.method.Offer()
	if err != nil {
		return connInfo{}, err
	}
	rand.Read(t.token[:]) // never fails
	var name [16]byte
	rand.Read(name[:])
	info := connInfo{place: at, token: t.token, socket: "@dynamo-nixl-" + hex.EncodeToString(name[:]), offer: offer}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: info.socket, Net: "unix"})
	if err != nil {
		return connInfo{}, fmt.Errorf("listen: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.place, t.ln = at, ln
	t.wg.Go(func() { wire.Accept(ln, t.host.Log(), t.Name(), t.closing, t.admit) })
	return info, nil
}

func (t *transport) Reach(r nixl.Remote) (string, error) {
	if r.Conn == nil {
		return "", fmt.Errorf("peer does not offer it: %w", nixl.ErrNotSupported)
	}
	if t.ln == nil {
		return "", fmt.Errorf("this process cannot share memory: %w", nixl.ErrNotSupported)
	}
	if own := t.host.Self().HostID; own != r.HostID {
		return "", fmt.Errorf("peer is on another host: %w", nixl.ErrNotSupported)
	}
	info, err := parseConnInfo(r.Conn)
	if err != nil {
		return "", err
	}
	if err := t.place.reaches(info.place); err != nil {
		return "", err
	}
	return t.method.Reach(r, info.offer)
}

func (t *transport) Attach(r nixl.Remote) { t.sessions.Attach(r, newSession(t, r)) }

// session returns the session of an attached generation and counts a user of it;
// the caller calls wg.Done when done.
func (t *transport) session(r nixl.Remote) (*session, error) {
	return t.sessions.Use(r, func(s *session) {
		if !s.started {
			s.started = true
			t.wg.Go(s.run)
		}
		t.wg.Add(1)
	})
}

func (t *transport) Submit(r nixl.Remote, j *nixl.Job) {
	s, err := t.session(r)
	if err != nil {
		j.Finish(err)
		return
	}
	go func() {
		defer t.wg.Done()
		s.runJob(j)
	}()
}

func (t *transport) Notify(ctx context.Context, r nixl.Remote, msg []byte) error {
	return t.with(ctx, r, func(s *session) error { return s.notify(msg, ctx.Done()) })
}

// with calls f with a connected session.
func (t *transport) with(ctx context.Context, r nixl.Remote, f func(*session) error) error {
	s, err := t.session(r)
	if err != nil {
		return err
	}
	defer t.wg.Done()
	if err := s.enter(ctx.Done()); err != nil {
		return err
	}
	defer s.jobs.Done()
	return f(s)
}

func (t *transport) OpenProbe(ctx context.Context, r nixl.Remote) (p nixl.Probe, err error) {
	err = t.with(ctx, r, func(s *session) error {
		var body []byte
		if err := s.ask(frame{header: header{kind: kindProbe}}, ctx.Done(), nil, &body); err != nil {
			return err
		}
		p, err = wire.ParseProbe(body)
		return err
	})
	return p, err
}

func (t *transport) CloseProbe(r nixl.Remote, id nixl.TicketID) {
	s, err := t.session(r)
	if err != nil {
		return
	}
	defer t.wg.Done()
	select {
	case <-s.ready:
		if s.c != nil {
			s.c.send(frame{header: header{kind: kindProbeClose}, body: id[:]})
		}
	default: // never connected: no probe was lent
	}
}

func (t *transport) Disconnect(r nixl.Remote, cause error) {
	if s, found := t.sessions.Forget(r); found {
		s.stop(cause)
	}
}

// Deregistered implements nixl.RegionObserver: peers unmap the region.
func (t *transport) Deregistered(base nixl.Desc) {
	t.mu.Lock()
	all := make([]*inbound, 0, len(t.inbound))
	for in := range t.inbound {
		all = append(all, in)
	}
	t.mu.Unlock()
	for _, in := range all {
		in.forget(base)
	}
}

func (t *transport) Close() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	inbound := make([]*inbound, 0, len(t.inbound))
	for in := range t.inbound {
		inbound = append(inbound, in)
	}
	for nc := range t.greeting {
		_ = nc.Close()
	}
	ln := t.ln
	t.mu.Unlock()
	if first && t.closing != nil {
		close(t.closing)
	}
	if ln != nil {
		_ = ln.Close()
	}
	for _, s := range t.sessions.Close() {
		s.stop(fmt.Errorf("agent closes: %w", nixl.ErrCanceled))
	}
	for _, in := range inbound {
		in.c.bye(wire.AgentCloses)
	}
	t.wg.Wait()
	return nil
}
