package requestplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
)

// NetClient is the network [Client]. It keeps one connection to each server that it
// calls. The address of an endpoint says how its server is reached. Make one with
// [NewClient].
type NetClient struct {
	cfg ClientConfig
	log *slog.Logger

	ctx    context.Context // ends with ErrClientClosed; parent of all dials
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	conns map[string]*clientConn // by the server part of addresses
	dials map[string]*dial
	// hopeless lists servers with another secret or version. For hopelessPause, calls to
	// them fail at once instead of repeating the handshake.
	hopeless map[string]hopelessServer
	refused  handshake.Refusals
	work     sync.WaitGroup // dials, ends of connections and the sweeper
}

var _ Client = (*NetClient)(nil)

// link is a connection after its handshake, which carries requests.
type link interface {
	// start sends an encoded request and returns once it is on its way. The error is
	// errNotOpened if nothing was sent. It must not outlast ctx, even if the peer does not
	// read; goroutines that do are conn's.
	start(ctx context.Context, conn *clientConn, h requestHeader, frame []byte) (Stream, error)
	IsClosed() bool
	CloseChan() <-chan struct{}
	Close() error
	reason() error // that closed the link, nil while it is open
}

// hopelessPause is the time for which calls to a hopeless server fail without a new attempt.
const hopelessPause = 5 * time.Second

type hopelessServer struct {
	err   error
	until time.Time
}

// dial is a connection attempt, which all callers to one address share.
type dial struct {
	done chan struct{} // closed when conn or err is set
	conn *clientConn
	err  error
}

// NewClient returns a client without connections. Close must be called.
func NewClient(cfg ClientConfig) *NetClient {
	cfg = cfg.withDefaults()
	c := &NetClient{
		cfg:   cfg,
		log:   cfg.Log,
		conns: make(map[string]*clientConn),
		dials: make(map[string]*dial),

		hopeless: make(map[string]hopelessServer),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.work.Go(c.sweep)
	return c
}

// Call implements [Client].
func (c *NetClient) Call(ctx context.Context, addr, id string, headers map[string]string, body any) (Stream, error) {
	server, path, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	h := requestHeader{ID: id, Path: path, Headers: headers}
	if d, ok := ctx.Deadline(); ok {
		h.Timeout = max(time.Until(d), 1)
	}
	frame, err := encodeRequest(h, body, c.cfg.MaxMessage)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	// A pooled connection may turn out to be dead before anything was sent on it. A
	// second dial then shows whether the server is reachable.
	for range 2 {
		var conn *clientConn
		conn, err = c.acquire(ctx, server)
		if err != nil {
			break
		}
		var s Stream
		s, err = conn.link.start(ctx, conn, h, frame)
		if err == nil {
			return s, nil
		}
		conn.release()
		if !errors.Is(err, errNotOpened) {
			break
		}
	}
	return nil, fmt.Errorf("call %s: %w", addr, err)
}

// acquire returns a live connection, counted as in use until its release.
func (c *NetClient) acquire(ctx context.Context, server string) (*clientConn, error) {
	for {
		c.mu.Lock()
		if c.ctx.Err() != nil {
			c.mu.Unlock()
			return nil, ErrClientClosed
		}
		if ctx.Err() != nil {
			c.mu.Unlock()
			return nil, context.Cause(ctx)
		}
		if conn := c.conns[server]; conn != nil {
			if !conn.link.IsClosed() {
				conn.streams++
				c.mu.Unlock()
				return conn, nil
			}
			delete(c.conns, server)
			c.work.Go(conn.close)
		}
		if h, ok := c.hopeless[server]; ok && time.Now().Before(h.until) {
			c.mu.Unlock()
			return nil, h.err
		}
		d := c.dials[server]
		if d == nil {
			d = &dial{done: make(chan struct{})}
			c.dials[server] = d
			c.work.Go(func() { c.connect(server, d) })
		}
		c.mu.Unlock()

		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if d.err != nil {
			return nil, d.err
		}
		// Retry: the connection counts as in use only under the lock.
	}
}

// connect completes d. It continues when the caller that started it leaves, because other
// callers wait for it.
func (c *NetClient) connect(server string, d *dial) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ConnectTimeout)
	defer cancel()
	start := time.Now()
	l, err := c.open(ctx, server)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dials, server)
	defer close(d.done)
	switch {
	case c.ctx.Err() != nil:
		if err == nil { // Close was called meanwhile
			c.work.Go(func() { _ = l.Close() })
		}
		d.err = ErrClientClosed
	case err != nil:
		d.err = fmt.Errorf("%w: %w", ErrCannotConnect, err)
		if !hopeless(err) {
			c.log.Debug("connect failed", "addr", server, "err", err)
			break
		}
		c.refused.Warn(c.log, "incompatible node", "addr", server, "err", err)
		c.hopeless[server] = hopelessServer{d.err, time.Now().Add(hopelessPause)}
	default:
		c.log.Debug("connect done", "addr", server, "took", time.Since(start))
		d.conn = &clientConn{client: c, addr: server, link: l, idleSince: time.Now()}
		c.conns[server] = d.conn
		c.work.Go(func() { c.bury(d.conn) })
	}
}

// bury waits for a connection to end and frees its resources. Without it they could stay
// for ever, since a vanished server may never be called again.
func (c *NetClient) bury(conn *clientConn) {
	<-conn.link.CloseChan()
	c.mu.Lock()
	if c.conns[conn.addr] == conn {
		delete(c.conns, conn.addr)
	}
	c.mu.Unlock()
	conn.close()
}

// open dials, with TLS if the server demands it.
func (c *NetClient) open(ctx context.Context, server string) (link, error) {
	if c.cfg.Key.IsZero() {
		return nil, cmp.Or(c.cfg.NoKey, handshake.ErrNoKey)
	}
	l, err := c.dial(ctx, server, &c.cfg)
	if errors.Is(err, handshake.ErrWantsTLS) && c.cfg.TLS == nil {
		up, upErr := c.cfg.upgraded()
		if upErr != nil {
			return nil, upErr
		}
		l, err = c.dial(ctx, server, up)
	}
	return l, err
}

func (c *NetClient) dial(ctx context.Context, server string, cfg *ClientConfig) (link, error) {
	at, plane := cluster.SplitPlane(server)
	conn, err := c.reach(ctx, plane, at)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	deadline, _ := ctx.Deadline()
	protocol := spoken
	if plane == cluster.PlaneHTTP {
		protocol = spokenHTTP
	}
	greeted, err := cfg.greetServer(conn, protocol, at, deadline)
	if !stop() {
		err = cmp.Or(context.Cause(ctx), err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	var l link
	if plane == cluster.PlaneHTTP {
		l, err = newHTTPLink(ctx, greeted, server, cfg.Liveness)
	} else {
		l, err = newSession(greeted, cfg.Liveness, true, c.log)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	c.log.Debug("connected", "addr", server, "over", secured(greeted))
	return l, nil
}

// reach connects to where a server of a plane is.
func (c *NetClient) reach(ctx context.Context, plane cluster.Plane, at string) (net.Conn, error) {
	if plane != cluster.PlaneNATS {
		var nd net.Dialer
		return nd.DialContext(ctx, "tcp", at)
	}
	if c.cfg.Pipes == nil {
		return nil, errNoPipes
	}
	hub, err := c.cfg.Pipes()
	if err != nil {
		return nil, err
	}
	return hub.Dial(ctx, at)
}

// sweep closes idle connections.
func (c *NetClient) sweep() {
	tick := time.NewTicker(max(c.cfg.IdleTimeout/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		for _, conn := range c.takeIdle(time.Now()) {
			c.log.Debug("closing idle connection", "addr", conn.addr)
			conn.close()
		}
	}
}

// takeIdle removes idle connections from the pool.
func (c *NetClient) takeIdle(now time.Time) []*clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.hopeless, func(_ string, h hopelessServer) bool { return now.After(h.until) })
	var idle []*clientConn
	for addr, conn := range c.conns {
		if conn.streams == 0 && now.Sub(conn.idleSince) >= c.cfg.IdleTimeout {
			delete(c.conns, addr)
			idle = append(idle, conn)
		}
	}
	return idle
}

// Close implements [Client].
func (c *NetClient) Close() error {
	c.mu.Lock()
	c.cancel(ErrClientClosed)
	conns := c.conns
	c.conns = make(map[string]*clientConn)
	c.mu.Unlock()

	var ending sync.WaitGroup
	for _, conn := range conns {
		ending.Go(conn.close)
	}
	ending.Wait()
	c.work.Wait()
	return nil
}
