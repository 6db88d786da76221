//go:build linux

package fenced

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// session is the initiator's side of the connection to one generation of a peer.
type session struct {
	t       *transport
	remote  nixl.Remote
	started bool // run was started; guarded by transport.sessions

	ctx    context.Context // ends with stop, whose cause is the context's
	cancel context.CancelCauseFunc

	ready chan struct{} // closed when connected, or ended
	ended chan struct{} // closed when err is set

	// Set before ready is closed, if it connected.
	c      *conn
	owner  process // of the memory
	fences *fences
	slots  chan struct{} // one per access
	window chan struct{} // one per notification that waits to be accepted

	mu     sync.Mutex
	err    error // why it ended: no call and no job begins any more
	lastID uint64
	calls  map[uint64]*call
	maps   mappings
	jobs   sync.WaitGroup // those that may touch mappings and fences
}

func newSession(t *transport, r nixl.Remote) *session {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &session{
		t: t, remote: r, ctx: ctx, cancel: cancel, ready: make(chan struct{}), ended: make(chan struct{}),
		calls: map[uint64]*call{}, maps: mappings{},
	}
}

// stop ends the session because this agent wants it to. It does not wait.
func (s *session) stop(cause error) { s.cancel(cause) }

// run connects and serves until the connection breaks or stop is called.
func (s *session) run() {
	cause := s.connect()
	if cause == nil {
		close(s.ready)
		cause = s.serve()
	}
	lost := s.ctx.Err() == nil
	if !lost {
		cause = context.Cause(s.ctx)
	}
	s.mu.Lock()
	s.err = cause
	s.mu.Unlock()
	close(s.ended)
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	s.jobs.Wait() // nobody is inside a fence any more
	s.mu.Lock()
	s.maps.clear()
	s.mu.Unlock()
	if s.fences != nil {
		_ = s.fences.close()
	}
	s.owner.close()
	if lost {
		s.t.host.PeerDown(s.remote, cause)
	}
	s.cancel(cause)
}

// connect dials and exchanges hellos. It gives up when the session is stopped.
func (s *session) connect() error {
	info, err := parseConnInfo(s.remote.Conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.t.opts.ConnectTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", info.socket)
	if err != nil {
		return fmt.Errorf("connect to %q: %w: %w", s.remote.Name, err, nixl.ErrRemoteDisconnect)
	}
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		_ = nc.Close()
		return fmt.Errorf("connect to %q: %T: %w", s.remote.Name, nc, nixl.ErrBackend)
	}
	c := newConn(uc, s.t.opts.ConnectTimeout, true)
	unwatch := context.AfterFunc(ctx, func() { c.fail(fmt.Errorf("no answer: %w", nixl.ErrRemoteDisconnect)) })
	err = s.greet(c, info)
	if !unwatch() && err == nil {
		<-c.done
		err = c.cause
	}
	if err != nil {
		c.fail(err)
		c.dropFDs()
		return fmt.Errorf("connect to %q: %w", s.remote.Name, err)
	}
	s.c = c
	return nil
}

// greet says hello and takes what the welcome brings.
func (s *session) greet(c *conn, info connInfo) error {
	err := control(c.uc, func(fd int) (err error) { s.owner, err = peerProcess(fd); return err })
	if err != nil {
		return err
	}
	if _, _, err := handshake.Connect(c.uc, handshake.Options{Protocol: spoken, Key: s.t.host.Key()}, time.Now().Add(s.t.opts.ConnectTimeout)); err != nil {
		return wire.HandshakeError(err)
	}
	if err := c.uc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	h := hello{token: info.token, ends: wire.Ends{From: s.t.host.Self(), To: s.remote.Identity}}
	var buf []byte
	if err := c.write([]frame{{header: header{kind: kindHello}, body: h.encode()}}, &buf); err != nil {
		return err
	}
	hd, body, err := c.read(func(kind) int { return helloBytes })
	if err != nil {
		return err
	}
	switch hd.kind {
	case kindWelcome:
	case kindResult, kindBye:
		return errors.Join(wire.ResultError(s.remote.Name, hd.status, body), nixl.ErrRemoteDisconnect)
	default:
		return fmt.Errorf("frame of kind %d instead of a welcome: %w: %w", hd.kind, errProtocol, nixl.ErrRemoteDisconnect)
	}
	w, err := parseWelcome(body)
	if err != nil {
		return err
	}
	fd := c.claimFD()
	if fd <= 0 {
		return fmt.Errorf("welcome without its descriptor: %w", errProtocol)
	}
	defer func() { _ = unix.Close(fd) }()
	if s.fences, err = mapFences(fd, int(w.fences)); err != nil {
		return err
	}
	c.silence = min(w.silence, s.t.opts.SilenceTimeout)
	s.slots, s.window = make(chan struct{}, w.fences), make(chan struct{}, w.window)
	return nil
}

// serve handles what the target sends, until the connection ends.
func (s *session) serve() error {
	var wg sync.WaitGroup
	wg.Go(func() {
		ping := time.NewTicker(max(s.c.silence/4, minPing))
		defer ping.Stop()
		for {
			select {
			case <-ping.C:
				s.c.send(frame{header: header{kind: kindPing}})
			case <-s.ctx.Done():
				s.c.bye(wire.LastWord(context.Cause(s.ctx)))
				return
			case <-s.c.done:
				return
			}
		}
	})
	cause := s.c.run(s.handle, func(k kind) int {
		switch k {
		case kindResult, kindBye:
			return wire.MaxText
		case kindPong:
			return 0
		case kindRegion:
			return wire.DescBytes + 8 + maxNote
		case kindGranted:
			return 8 + wire.DescBytes*s.t.host.Limits().Descs
		}
		return 64 // a permit, a probe, a forgotten region
	})
	wg.Wait()
	if errors.Is(cause, errProtocol) {
		cause = fmt.Errorf("%w: %w", cause, nixl.ErrRemoteDisconnect)
	}
	return cause
}

func (s *session) handle(h header, body []byte) error {
	switch h.kind {
	case kindGranted:
		return s.granted(h.id, body)
	case kindResult, kindProbeInfo:
		return s.result(h, body)
	case kindRegion:
		return s.takeRegion(body)
	case kindForget:
		if len(body) != wire.DescBytes {
			return fmt.Errorf("forgotten region of %d bytes: %w", len(body), errProtocol)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.maps.forget(wire.ParseDesc(body).Addr)
		return nil
	case kindPong:
		return nil
	case kindBye:
		return wire.Goodbye(body)
	}
	return fmt.Errorf("frame of kind %d from a target: %w", h.kind, errProtocol)
}

// takeRegion takes memory that the target hands over.
func (s *session) takeRegion(body []byte) error {
	base, addr, note, err := parseRegion(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.maps) >= s.t.host.Limits().Regions {
		return fmt.Errorf("more than %d regions: %w", len(s.maps), errProtocol)
	}
	if err := s.maps.fits(base); err != nil {
		return err
	}
	fd := s.c.claimFD()
	if fd > 0 {
		defer func() { _ = unix.Close(fd) }()
	}
	held := s.fences.regions()
	if !held.enter(regionsOpen) {
		return fmt.Errorf("region %s after the end of the session: %w", base, nixl.ErrRemoteDisconnect)
	}
	mem, err := s.t.method.Take(Owner{PID: s.owner.pid, Gone: s.owner.gone}, base, addr, fd, note)
	if err != nil {
		held.leave(0)
		return fmt.Errorf("region %s: %w: %w", base, err, errProtocol)
	}
	s.maps[base.Addr] = &mapping{base: base, mem: mem, gave: func() {
		held.leave(0)
		s.c.send(frame{header: header{kind: kindForgot}, body: wire.AppendDesc(nil, base)})
	}}
	return nil
}

// enter waits until the session is connected and counts a job that may touch its
// memory; the caller calls jobs.Done.
func (s *session) enter(stop <-chan struct{}) error {
	select {
	case <-s.ready:
	case <-stop:
		return errStopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.jobs.Add(1)
	return nil
}

// notify delivers a message and waits until it is accepted.
func (s *session) notify(msg []byte, stop <-chan struct{}) error {
	select {
	case s.window <- struct{}{}:
	case <-s.ended:
		return s.err
	case <-stop:
		return errStopped
	}
	return s.ask(frame{header: header{kind: kindNotify}, body: msg}, stop, func() { <-s.window }, nil)
}

// ask sends a request and waits for its only answer.
func (s *session) ask(f frame, stop <-chan struct{}, done func(), body *[]byte) error {
	cl, err := s.begin(f, nil, done)
	if err != nil {
		return err
	}
	r, err := s.wait(cl, stop)
	if err != nil {
		return err
	}
	if body != nil {
		*body = r.body
	}
	return r.err
}
