package requestplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Memory is a request plane inside one process. Its servers and clients reach only each
// other. Messages are encoded as on the network, so that the two sides never share data.
type Memory struct {
	mu      sync.Mutex
	servers map[string]*MemoryServer // key: address
	made    int
}

// NewMemory returns a plane without servers.
func NewMemory() *Memory { return &Memory{servers: make(map[string]*MemoryServer)} }

// MemoryServer is a [Server] of a [Memory].
type MemoryServer struct {
	plane    *Memory
	addr     string
	limits   Limits
	reg      *registry
	ctx      context.Context // ends with ErrServerClosed
	cancel   context.CancelCauseFunc
	requests requestGroup
}

// MemoryClient is a [Client] of a [Memory].
type MemoryClient struct {
	plane  *Memory
	ctx    context.Context // ends with ErrClientClosed
	cancel context.CancelCauseFunc
}

var (
	_ Server = (*MemoryServer)(nil)
	_ Client = (*MemoryClient)(nil)
)

// NewServer adds a server with an address of its own. A nil log discards.
func (m *Memory) NewServer(limits Limits, log *slog.Logger) *MemoryServer {
	return m.newServer("", limits, log)
}

// newServer adds a server at addr, or at an address of its own if that is empty.
func (m *Memory) newServer(addr string, limits Limits, log *slog.Logger) *MemoryServer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	limits = limits.withDefaults()
	s := &MemoryServer{plane: m, limits: limits, reg: newRegistry(limits.MaxInFlight, log)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	if s.addr = addr; addr == "" {
		s.addr = "memory:" + strconv.Itoa(m.made)
	}
	m.servers[s.addr] = s
	return s
}

func (m *Memory) has(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers[addr] != nil
}

// NewClient returns a client that reaches all servers of m.
func (m *Memory) NewClient() *MemoryClient {
	c := &MemoryClient{plane: m}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Handle implements [Server].
func (s *MemoryServer) Handle(path string, h Handler) (func(context.Context) error, error) {
	return s.reg.handle(path, h)
}

// Addr implements [Server].
func (s *MemoryServer) Addr() string { return s.addr }

// InFlight implements [Server].
func (s *MemoryServer) InFlight(path string) int { return s.reg.inFlight(path) }

// Close implements [Server].
func (s *MemoryServer) Close() error {
	s.reg.close()
	s.plane.mu.Lock()
	delete(s.plane.servers, s.addr)
	s.plane.mu.Unlock()
	s.cancel(ErrServerClosed)
	if left := s.requests.wait(closeGrace); left > 0 {
		return fmt.Errorf("close request plane server: %d handlers did not return within %s", left, closeGrace)
	}
	return nil
}

// Close implements [Client].
func (c *MemoryClient) Close() error {
	c.cancel(ErrClientClosed)
	return nil
}

// Call implements [Client].
func (c *MemoryClient) Call(ctx context.Context, addr, id string, headers map[string]string, body any) (Stream, error) {
	hostport, path, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	h := requestHeader{ID: id, Path: path, Headers: headers}
	if d, ok := ctx.Deadline(); ok {
		h.Timeout = max(time.Until(d), 1)
	}
	frame, err := encodeRequest(h, body, DefaultMaxMessage)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	switch {
	case c.ctx.Err() != nil:
		return nil, fmt.Errorf("call %s: %w", addr, ErrClientClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("call %s: %w", addr, context.Cause(ctx))
	}
	c.plane.mu.Lock()
	s := c.plane.servers[hostport]
	c.plane.mu.Unlock()
	if s == nil || !s.requests.add() {
		return nil, fmt.Errorf("call %s: %w: no such server", addr, ErrCannotConnect)
	}
	st := newMemoryStream(ctx, c, s)
	go func() {
		defer s.requests.done()
		st.serve(frame)
	}()
	return st, nil
}

// serve is the server's side of one request.
func (st *memoryStream) serve(frame []byte) {
	defer close(st.abandoned) // after a final frame it has no effect
	s := st.server
	if n := len(frame) - 4; n > s.limits.MaxMessage {
		st.put(frameError, encodeError(&RemoteError{Kind: KindInvalidArgument, Message: fmt.Sprintf("length %d, limit %d", n, s.limits.MaxMessage)}))
		return
	}
	h, body, err := decodeRequest(frame[frameOverhead:])
	if err != nil {
		st.put(frameError, encodeError(&RemoteError{Kind: KindInvalidArgument, Message: err.Error()}))
		return
	}
	if !s.reg.reserve() {
		st.put(frameError, encodeError(s.reg.overloaded()))
		return
	}
	defer s.reg.release()
	e, refusal := s.reg.enter(h.Path)
	if refusal != nil {
		st.put(frameError, encodeError(refusal))
		return
	}
	defer s.reg.leave(e)

	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	if h.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, h.Timeout, ErrTimeout)
		defer stop()
	}
	defer context.AfterFunc(st.left, func() { cancel(context.Cause(st.left)) })()
	st.answer(ctx, e, &Request{ID: h.ID, Path: h.Path, Headers: h.Headers, Body: body, Stop: st.asked})
}

func (st *memoryStream) answer(ctx context.Context, e *endpoint, req *Request) {
	lost := false
	var mu sync.Mutex
	send := func(item any) (err error) {
		mu.Lock()
		defer mu.Unlock()
		defer func() { lost = lost || err != nil }()
		b, err := encodeItem(item, st.server.limits.MaxMessage)
		if err != nil {
			return fmt.Errorf("request %s: %w", req.ID, err)
		}
		return st.offer(ctx, memoryFrame{frameItem, append([]byte(nil), b...)})
	}
	failure := st.server.reg.run(ctx, e, req, send)
	cause := context.Cause(ctx)
	if cause != nil && !errors.Is(cause, ErrTimeout) {
		return
	}
	if failure == nil && lost {
		failure = remoteError(ctx, errors.Join(cause, errItemLost))
	}
	if failure != nil {
		st.put(frameError, encodeError(failure))
		return
	}
	st.put(frameEnd, nil)
}
