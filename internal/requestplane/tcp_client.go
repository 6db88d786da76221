package requestplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

// TCPClient is the network [Client]. It keeps one connection to each server that it
// calls. Make one with [NewTCPClient].
type TCPClient struct {
	cfg ClientConfig
	log *slog.Logger

	ctx    context.Context // ends with ErrClientClosed; parent of all dials
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	conns map[string]*clientConn // by host:port
	dials map[string]*dial
	// hopeless lists servers with another secret or version. For hopelessPause, calls to
	// them fail at once instead of repeating the handshake.
	hopeless map[string]hopelessServer
	refused  handshake.Refusals
	work     sync.WaitGroup // dials, ends of connections and the sweeper
}

var _ Client = (*TCPClient)(nil)

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

// NewTCPClient returns a client without connections. Close must be called.
func NewTCPClient(cfg ClientConfig) *TCPClient {
	cfg = cfg.withDefaults()
	c := &TCPClient{
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
func (c *TCPClient) Call(ctx context.Context, addr, id string, headers map[string]string, body any) (Stream, error) {
	hostport, path, err := splitAddr(addr)
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
		conn, err = c.acquire(ctx, hostport)
		if err != nil {
			break
		}
		var s *tcpStream
		s, err = conn.start(ctx, frame)
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

// splitAddr splits "host:port/path".
func splitAddr(addr string) (hostport, path string, err error) {
	hostport, path, ok := strings.Cut(addr, "/")
	if !ok || hostport == "" || path == "" {
		return "", "", fmt.Errorf("call %q: want host:port/path: %w", addr, ErrCannotConnect)
	}
	return hostport, path, nil
}

// acquire returns a live connection, counted as in use until its release.
func (c *TCPClient) acquire(ctx context.Context, hostport string) (*clientConn, error) {
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
		if conn := c.conns[hostport]; conn != nil {
			if !conn.sess.IsClosed() {
				conn.streams++
				c.mu.Unlock()
				return conn, nil
			}
			delete(c.conns, hostport)
			c.work.Go(conn.close)
		}
		if h, ok := c.hopeless[hostport]; ok && time.Now().Before(h.until) {
			c.mu.Unlock()
			return nil, h.err
		}
		d := c.dials[hostport]
		if d == nil {
			d = &dial{done: make(chan struct{})}
			c.dials[hostport] = d
			c.work.Go(func() { c.connect(hostport, d) })
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
func (c *TCPClient) connect(hostport string, d *dial) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ConnectTimeout)
	defer cancel()
	start := time.Now()
	sess, err := c.open(ctx, hostport)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dials, hostport)
	defer close(d.done)
	switch {
	case c.ctx.Err() != nil:
		if err == nil { // Close was called meanwhile
			c.work.Go(func() { sess.Close() })
		}
		d.err = ErrClientClosed
	case err != nil:
		d.err = fmt.Errorf("%w: %w", ErrCannotConnect, err)
		if !hopeless(err) {
			c.log.Debug("connect failed", "addr", hostport, "err", err)
			break
		}
		c.refused.Warn(c.log, "incompatible node", "addr", hostport, "err", err)
		c.hopeless[hostport] = hopelessServer{d.err, time.Now().Add(hopelessPause)}
	default:
		c.log.Debug("connect done", "addr", hostport, "took", time.Since(start))
		d.conn = &clientConn{client: c, addr: hostport, sess: sess, idleSince: time.Now()}
		c.conns[hostport] = d.conn
		c.work.Go(func() { c.bury(d.conn) })
	}
}

// bury waits for a connection to end and frees its resources. Without it they could stay
// for ever, since a vanished server may never be called again.
func (c *TCPClient) bury(conn *clientConn) {
	<-conn.sess.CloseChan()
	c.mu.Lock()
	if c.conns[conn.addr] == conn {
		delete(c.conns, conn.addr)
	}
	c.mu.Unlock()
	conn.close()
}

// open dials, with TLS if the server demands it.
func (c *TCPClient) open(ctx context.Context, hostport string) (*session, error) {
	if c.cfg.Key.IsZero() {
		return nil, cmp.Or(c.cfg.NoKey, handshake.ErrNoKey)
	}
	sess, err := c.dial(ctx, hostport, &c.cfg)
	if errors.Is(err, handshake.ErrWantsTLS) && c.cfg.TLS == nil {
		up, upErr := c.cfg.upgraded()
		if upErr != nil {
			return nil, upErr
		}
		sess, err = c.dial(ctx, hostport, up)
	}
	return sess, err
}

func (c *TCPClient) dial(ctx context.Context, hostport string, cfg *ClientConfig) (*session, error) {
	var nd net.Dialer
	conn, err := nd.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	deadline, _ := ctx.Deadline()
	greeted, err := cfg.greetServer(conn, hostport, deadline)
	if !stop() {
		err = cmp.Or(context.Cause(ctx), err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	sess, err := newSession(greeted, cfg.Liveness, true, c.log)
	if err != nil {
		conn.Close()
		return nil, err
	}
	c.log.Debug("connected", "addr", hostport, "over", secured(greeted))
	return sess, nil
}

// sweep closes idle connections.
func (c *TCPClient) sweep() {
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
func (c *TCPClient) takeIdle(now time.Time) []*clientConn {
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
func (c *TCPClient) Close() error {
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
