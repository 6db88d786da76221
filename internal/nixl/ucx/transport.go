package ucx

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// Available reports why this program cannot use UCX on this machine; nil if it can.
func Available() error {
	_, err := ucp.Load()
	return err
}

// New returns a transport for one agent, to be put into its Config.
func New(o Options) nixl.Transport {
	ctx, cancel := context.WithCancel(context.Background())
	return &transport{
		opts: o.withDefaults(), ctx: ctx, cancel: cancel, greeting: make(chan struct{}, greetings),
		sessions: map[uint64]*session{}, inbound: map[*inbound]struct{}{},
	}
}

// transport is the ucx transport of one agent. Connections belong to its engine's
// goroutine; Start, Reach and the regions are used by others. No lock is held while the
// Host or a Job is called.
type transport struct {
	opts    Options
	host    nixl.Host
	token   secret
	network string // what connections go over, for people
	direct  bool   // devices access memory; else bytes travel in messages

	engine  *engine // nil: not offered
	regions *regions
	ln      net.Listener

	ctx       context.Context // of sockets; ends with Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup // those that wait for sockets
	greeting  chan struct{}  // sockets that are being let in
	strangers handshake.Lobby
	refusals  handshake.Refusals
	closeOnce sync.Once

	// Of the engine's goroutine.
	closed   bool
	sessions map[uint64]*session // by generation
	inbound  map[*inbound]struct{}
}

var _ nixl.RegionMapper = (*transport)(nil)

func (t *transport) Name() string { return Name }

// Start opens the devices. Without RDMA, and unless Options.AnyNetwork asks for what
// there is, the agent works without this transport.
func (t *transport) Start(h nixl.Host) ([]byte, error) {
	t.host = h
	if h.Key().IsZero() {
		return nil, wire.HandshakeError(handshake.ErrNoKey)
	}
	devices := rdmaDevices("/")
	if len(devices) == 0 && !t.opts.AnyNetwork {
		return nil, nil
	}
	conn, err := t.open(devices)
	if err != nil && !t.opts.AnyNetwork {
		h.Log().Warn("nixl does not use the RDMA devices of this machine", "transport", Name, "devices", devices, "error", err)
		return nil, nil
	}
	return conn, err
}

func (t *transport) open(devices []string) ([]byte, error) {
	lib, err := ucp.Load()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", nixl.ErrNotSupported, err)
	}
	settings := t.opts.settings(len(devices) > 0)
	ctx, err := lib.NewContext(settings.list()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", nixl.ErrBackend, err)
	}
	t.direct = len(devices) > 0 && oneSided(settings["TLS"]) || t.opts.emulate
	t.network = "UCX " + lib.Version()
	if t.direct {
		t.network += " over " + strings.Join(devices, ", ")
	} else {
		t.network += ", without RDMA"
	}
	rand.Read(t.token[:]) // never fails
	ln, addr, err := wire.Listen(t.opts.Listen, t.opts.AdvertiseHost)
	if err != nil {
		ctx.Close()
		return nil, err
	}
	e, err := newEngine(lib, ctx)
	if err != nil {
		ctx.Close()
		return nil, errors.Join(err, ln.Close())
	}
	t.engine, t.regions, t.ln = e, &regions{ctx: ctx}, ln
	go e.run()
	t.wg.Go(func() { wire.Accept(ln, t.host.Log(), Name, t.ctx.Done(), t.admit) })
	return connInfo{token: t.token, addr: addr}.encode(), nil
}

func (t *transport) Reach(r nixl.Remote) (string, error) {
	if r.Conn == nil {
		return "", fmt.Errorf("peer does not offer it: %w", nixl.ErrNotSupported)
	}
	if t.engine == nil {
		return "", fmt.Errorf("this machine has no RDMA device that UCX can use: %w", nixl.ErrNotSupported)
	}
	if _, err := parseConnInfo(r.Conn); err != nil {
		return "", err
	}
	return wire.Where(t.host.Self(), r) + ", " + t.network, nil
}

// MapRegion implements nixl.RegionMapper.
func (t *transport) MapRegion(base nixl.Desc, mem []byte) error {
	if !t.direct {
		return nil
	}
	return t.regions.add(base, mem)
}

// UnmapRegion implements nixl.RegionMapper.
func (t *transport) UnmapRegion(base nixl.Desc) {
	if !t.direct {
		return
	}
	t.engine.call(func() {
		for in := range t.inbound {
			in.forget(base)
		}
	})
	t.regions.remove(base)
}

func (t *transport) Attach(r nixl.Remote) {
	t.engine.do(func() {
		if !t.closed {
			t.sessions[r.Generation] = newSession(t, r)
		}
	})
}

// with runs f with the session of an attached generation, or with why there is none.
func (t *transport) with(r nixl.Remote, f func(*session, error)) {
	ok := t.engine.do(func() {
		switch s := t.sessions[r.Generation]; {
		case t.closed:
			f(nil, errClosed)
		case s == nil:
			f(nil, fmt.Errorf("peer %q was invalidated or lost: %w", r.Name, nixl.ErrNotFound))
		default:
			f(s, nil)
		}
	})
	if !ok {
		f(nil, errClosed)
	}
}

var errClosed = fmt.Errorf("transport is closed: %w", nixl.ErrCanceled)

// forget drops a session that has ended by itself. It stays known until Disconnect,
// so that later calls are told why.
func (t *transport) forget(s *session) {
	if s.t.closed {
		delete(t.sessions, s.remote.Generation)
	}
}

func (t *transport) Submit(r nixl.Remote, j *nixl.Job) {
	t.with(r, func(s *session, err error) {
		if err != nil {
			j.Finish(err)
			return
		}
		s.submit(j)
	})
}

func (t *transport) Notify(ctx context.Context, r nixl.Remote, msg []byte) error {
	done := make(chan error, 1)
	n := &note{msg: msg, done: func(err error) { done <- err }}
	var at *session
	t.with(r, func(s *session, err error) {
		if at = s; err != nil {
			n.done(err)
			return
		}
		s.notify(n)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.engine.do(func() {
			if at != nil {
				at.unqueue(n)
			}
		})
		return fmt.Errorf("peer has not accepted it: %w", nixl.ErrCanceled)
	}
}

func (t *transport) OpenProbe(ctx context.Context, r nixl.Remote) (nixl.Probe, error) {
	type answer struct {
		probe nixl.Probe
		err   error
	}
	got := make(chan answer, 1)
	t.with(r, func(s *session, err error) {
		if err != nil {
			got <- answer{err: err}
			return
		}
		s.probe(func(p nixl.Probe, err error) { got <- answer{p, err} })
	})
	select {
	case a := <-got:
		return a.probe, a.err
	case <-ctx.Done():
		return nixl.Probe{}, context.Cause(ctx)
	}
}

func (t *transport) CloseProbe(r nixl.Remote, id nixl.TicketID) {
	t.with(r, func(s *session, err error) {
		if err == nil {
			s.closeProbe(id)
		}
	})
}

func (t *transport) Disconnect(r nixl.Remote, cause error) {
	t.engine.do(func() {
		if s := t.sessions[r.Generation]; s != nil {
			if !t.closed {
				delete(t.sessions, r.Generation)
			}
			s.stop(cause)
		}
	})
}

func (t *transport) Close() error {
	t.closeOnce.Do(func() {
		defer t.cancel()
		if t.engine == nil {
			return
		}
		_ = t.ln.Close()
		gone := make(chan struct{})
		t.engine.do(func() { t.shut(gone) })
		<-gone
		t.cancel()
		t.wg.Wait()
		t.engine.stop()
		t.regions.clear()
		t.regions.ctx.Close()
	})
	return nil
}

// shut says goodbye to everybody, and closes gone when all connections are closed.
func (t *transport) shut(gone chan struct{}) {
	t.closed = true
	for _, s := range t.sessions {
		s.stop(fmt.Errorf("agent closes: %w", nixl.ErrCanceled))
	}
	for in := range t.inbound {
		in.bye(wire.AgentCloses)
	}
	t.await(gone)
}

// await looks again and again whether the last words were said, for which there is a
// deadline.
func (t *transport) await(gone chan struct{}) {
	if len(t.engine.ports) == 0 {
		close(gone)
		return
	}
	t.engine.later(func() { t.await(gone) })
}
