package tcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// session is the initiator's side of all connections to one generation of a peer.
type session struct {
	t       *transport
	remote  nixl.Remote
	started bool // run was started; guarded by transport.sessions

	stopOnce sync.Once
	stopped  chan struct{} // closed by stop
	reason   error         // of stop; set before

	mu      sync.Mutex
	ready   chan struct{} // closed when up or ended
	up      bool
	ended   error // no job or call is taken any more
	conns   []*initiator
	xfers   map[*xfer]struct{}
	waiting []*xfer // posted before the session was up
	turn    int     // where the next part goes, among equals

	notes     []*note // notifications the window has no room for yet
	noteCount int     // sent, not answered
	noteBytes int
}

// note is a notification on its way.
type note struct {
	msg  []byte
	done func(error)
}

func newSession(t *transport, r nixl.Remote) *session {
	return &session{t: t, remote: r, stopped: make(chan struct{}), ready: make(chan struct{}), xfers: map[*xfer]struct{}{}}
}

// stop ends the session because this agent wants it to. It does not wait.
func (s *session) stop(cause error) {
	s.stopOnce.Do(func() {
		s.reason = cause
		close(s.stopped)
	})
}

// run connects and serves until a connection breaks or stop is called. When it
// returns, no memory is touched and every job and call has ended.
func (s *session) run() {
	cause := s.serve()
	wanted := false
	select {
	case <-s.stopped:
		cause, wanted = s.reason, true
	default:
		if !errors.Is(cause, nixl.ErrRemoteDisconnect) {
			cause = fmt.Errorf("%w: %w", nixl.ErrRemoteDisconnect, cause) // its status counts, not one inside of cause
		}
		cause = fmt.Errorf("peer %q: %w", s.remote.Name, cause)
	}
	s.end(cause)
	if !wanted {
		s.t.host.PeerDown(s.remote, cause)
	}
}

func (s *session) serve() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.t.opts.ConnectTimeout)
	defer cancel()
	unwatch := make(chan struct{})
	defer close(unwatch)
	s.t.wg.Go(func() {
		select {
		case <-s.stopped:
			cancel()
		case <-unwatch:
		}
	})
	conns, err := s.connect(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	broken := make(chan error, len(conns))
	for _, c := range conns {
		wg.Go(func() { broken <- c.run() })
	}
	s.launch(conns)
	select {
	case err = <-broken:
		for _, c := range conns {
			c.fail(err)
		}
	case <-s.stopped:
		s.cancelAll(s.reason)
		for _, c := range conns {
			c.bye(wire.LastWord(s.reason))
		}
	}
	wg.Wait()
	return err
}

// connect dials all connections at once.
func (s *session) connect(ctx context.Context) ([]*initiator, error) {
	info, err := parseConnInfo(s.remote.Conn)
	if err != nil {
		return nil, err
	}
	conns := make([]*initiator, s.t.opts.Conns)
	g, ctx := errgroup.WithContext(ctx)
	for i := range conns {
		g.Go(func() (err error) {
			conns[i], err = s.dial(ctx, info)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, c := range conns {
			if c != nil {
				closeNow(c.nc)
			}
		}
		return nil, fmt.Errorf("connect to %s: %w", info.addr, err)
	}
	return conns, nil
}

func (s *session) dial(ctx context.Context, info connInfo) (*initiator, error) {
	raw, err := s.t.opts.dial(ctx, info.addr)
	if err != nil {
		return nil, err
	}
	setBuffers(raw, s.t.opts.SocketBuffer)
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	nc, _, err := s.t.prove(raw, info.addr)
	var w welcome
	var br *bufio.Reader
	if err == nil {
		w, br, err = s.greet(nc, info)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	silence := s.t.opts.SilenceTimeout
	ping := max(min(silence, w.silence)/4, minPing)
	c := newConn(nc, br, silence, ping)
	c.staged = s.t.opts.TLS != nil
	return newInitiator(s, c, w), nil
}

// greet says hello and reads the answer.
func (s *session) greet(nc net.Conn, info connInfo) (welcome, *bufio.Reader, error) {
	if err := nc.SetDeadline(time.Now().Add(s.t.opts.ConnectTimeout)); err != nil {
		return welcome{}, nil, err
	}
	h := hello{token: info.token, checksums: s.t.opts.Checksums, generation: s.remote.Generation, ends: wire.Ends{From: s.t.host.Self(), To: s.remote.Identity}}
	if _, err := nc.Write(frame{header{kind: kindHello}, h.encode()}.append(nil)); err != nil {
		return welcome{}, nil, err
	}
	br := bufio.NewReader(nc)
	hd, body, err := readGreeting(br)
	if err != nil {
		return welcome{}, nil, err
	}
	switch hd.kind {
	case kindWelcome:
	case kindResult:
		return welcome{}, nil, fmt.Errorf("refused: %s: %w", wire.Printable(body), wire.ResultStatus(hd.status))
	default:
		return welcome{}, nil, fmt.Errorf("answer of kind %d to the hello: %w", hd.kind, errProtocol)
	}
	w, err := parseWelcome(body)
	if err != nil {
		return welcome{}, nil, err
	}
	return w, br, nc.SetDeadline(time.Time{})
}

// launch makes the session take jobs and starts those that waited.
func (s *session) launch(conns []*initiator) {
	s.mu.Lock()
	s.up, s.conns = true, conns
	close(s.ready)
	waiting := s.waiting
	s.waiting = nil
	s.pumpLocked()
	s.mu.Unlock()
	for _, x := range waiting {
		x.start(conns)
	}
}

// submit takes a job.
func (s *session) submit(j *nixl.Job) {
	x := &xfer{s: s, job: j}
	s.mu.Lock()
	if s.ended != nil {
		err := s.ended
		s.mu.Unlock()
		j.Finish(err)
		return
	}
	s.xfers[x] = struct{}{}
	conns := s.conns
	if !s.up {
		s.waiting = append(s.waiting, x)
	}
	s.mu.Unlock()
	if conns != nil {
		x.start(conns)
	}
	j.OnCancel(x.fail)
}

func (s *session) forget(x *xfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.xfers, x)
}

// cancelAll ends all jobs while the connections still work.
func (s *session) cancelAll(cause error) {
	for _, x := range s.running() {
		x.fail(cause)
	}
}

func (s *session) running() []*xfer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*xfer, 0, len(s.xfers))
	for x := range s.xfers {
		out = append(out, x)
	}
	return out
}

// end finishes what is left after the connections are gone.
func (s *session) end(cause error) {
	s.mu.Lock()
	s.ended, s.waiting = cause, nil
	if !s.up {
		close(s.ready)
	}
	conns, notes := s.conns, s.notes
	s.notes = nil
	s.mu.Unlock()
	for _, n := range notes {
		n.done(cause)
	}
	for _, c := range conns {
		c.abandon(cause)
	}
	for _, x := range s.running() {
		x.abandon(cause)
	}
}

// notify queues a notification; done is called once, unless it was unqueued.
func (s *session) notify(msg []byte, done func(error)) *note {
	n := &note{msg: msg, done: done}
	s.queueNote(n)
	return n
}

func (s *session) queueNote(n *note) {
	s.mu.Lock()
	if err := s.ended; err != nil {
		s.mu.Unlock()
		n.done(err)
		return
	}
	s.notes = append(s.notes, n)
	s.pumpLocked()
	s.mu.Unlock()
}

// unqueue takes back a notification that was not sent yet.
func (s *session) unqueue(n *note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.notes {
		if s.notes[i] == n {
			s.notes = append(s.notes[:i:i], s.notes[i+1:]...)
			return
		}
	}
}

// pumpLocked sends queued notifications while the window has room, all over the
// first connection, so that they stay in order.
func (s *session) pumpLocked() {
	for s.up && s.ended == nil && len(s.notes) > 0 {
		n := s.notes[0]
		if !s.reserveLocked(len(n.msg)) {
			return
		}
		s.notes = s.notes[1:]
		s.conns[0].call(frame{header{kind: kindNotify, arg: s.conns[0].noteSum(n.msg)}, n.msg}, func(_ []byte, err error) {
			s.unreserve(len(n.msg))
			n.done(err)
		})
	}
}

// reserveLocked takes room in the window of notifications the target has not
// accepted yet.
func (s *session) reserveLocked(size int) bool {
	w := s.conns[0].limits
	if s.noteCount > 0 && (s.noteCount >= int(w.windowCount) || s.noteBytes+size > int(w.windowBytes)) {
		return false
	}
	s.noteCount++
	s.noteBytes += size
	return true
}

func (s *session) unreserve(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteCount--
	s.noteBytes -= size
	s.pumpLocked()
}

func (s *session) openProbe(ctx context.Context) (nixl.Probe, error) {
	type answer struct {
		probe nixl.Probe
		err   error
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nixl.Probe{}, context.Cause(ctx)
	}
	s.mu.Lock()
	ended, conns := s.ended, s.conns
	s.mu.Unlock()
	if ended != nil {
		return nixl.Probe{}, ended
	}
	got := make(chan answer, 1)
	conns[0].call(frame{header: header{kind: kindProbe}}, func(body []byte, err error) {
		a := answer{err: err}
		if err == nil {
			a.probe, a.err = wire.ParseProbe(body)
		}
		got <- a
	})
	select {
	case a := <-got:
		return a.probe, a.err
	case <-ctx.Done():
		return nixl.Probe{}, context.Cause(ctx)
	}
}

func (s *session) closeProbe(id nixl.TicketID) {
	s.mu.Lock()
	up, conns := s.up && s.ended == nil, s.conns
	s.mu.Unlock()
	if up {
		conns[0].send(frame{header{kind: kindProbeClose}, id[:]})
	}
}
