package ucx

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// session is the initiator's side of the connection to one generation of a peer. All
// of it runs on the engine's goroutine.
type session struct {
	t      *transport
	e      *engine
	remote nixl.Remote
	state  sessionState
	cause  error  // set once the session ends; nothing begins any more
	lost   bool   // the connection broke, as opposed to being given up
	bye    bool   // was said
	word   []byte // the peer's last one, whose message may still come until deadline; nil without

	port     *port
	cancel   context.CancelFunc // of dialing
	socket   net.Conn           // its end tells that the peer is gone
	w        welcome
	deadline time.Time // of the last words, of either side
	heard    time.Time
	pinged   time.Time
	silence  time.Duration

	lastID  uint64
	calls   map[uint64]func(f frame, err error)
	xfers   []*xfer // those that hold an access of the target, in order
	waiting []*xfer
	keys    map[uint64]*remoteRegion
	unused  []*ucp.Key // of regions that are gone

	notes   []*note // waiting for room in the window
	noteOut int
	began   []func(error) // waiting for the connection
}

type sessionState uint8

const (
	idle sessionState = iota
	dialing
	up
	leaving // says goodbye
	ended
)

// remoteRegion is memory of the peer that was granted before.
type remoteRegion struct {
	base nixl.Desc
	addr uint64
	key  *ucp.Key
}

// note is a notification on its way.
type note struct {
	msg  []byte
	done func(error)
}

func newSession(t *transport, r nixl.Remote) *session {
	return &session{t: t, e: t.engine, remote: r, calls: map[uint64]func(frame, error){}, keys: map[uint64]*remoteRegion{}}
}

// dial begins to connect.
func (s *session) dial() {
	if s.state != idle {
		return
	}
	s.state, s.heard, s.silence = dialing, s.e.now, s.t.opts.SilenceTimeout
	info, err := parseConnInfo(s.remote.Conn)
	if err == nil {
		s.port, err = s.e.newPort(s)
	}
	if err != nil {
		s.broken(fmt.Errorf("connect: %w", err))
		return
	}
	h := hello{token: info.token, generation: s.remote.Generation, ends: wire.Ends{From: s.t.host.Self(), To: s.remote.Identity}, address: s.port.w.Address()}
	ctx, cancel := context.WithTimeout(s.t.ctx, s.t.opts.ConnectTimeout)
	s.cancel = cancel
	s.t.wg.Go(func() {
		defer cancel()
		nc, w, err := dialPeer(ctx, info.addr, s.t.host.Key(), h)
		if err != nil {
			s.e.do(func() { s.broken(fmt.Errorf("connect to %s: %w", info.addr, err)) })
			return
		}
		stop := context.AfterFunc(s.t.ctx, func() { _ = nc.Close() })
		defer stop()
		defer func() { _ = nc.Close() }()
		if s.e.do(func() { s.greeted(nc, w) }) {
			s.e.hangUp(nc, s)
		}
	})
}

// greeted goes on when the target has made an end of its own for this session.
func (s *session) greeted(nc net.Conn, w welcome) {
	if s.state != dialing {
		_ = nc.Close()
		return
	}
	s.socket = nc
	if err := s.port.connect(w.address); err != nil {
		s.broken(err)
		return
	}
	s.w, s.state = w, up
	s.heard, s.pinged = s.e.now, s.e.now
	s.silence = min(s.silence, w.silence)
	s.port.send(frame{kind: kindPing})
	s.pump()
	s.pumpNotes()
	s.tellBegan(nil)
}

// connected calls f when the session is up, or with why it is not.
func (s *session) connected(f func(error)) {
	if s.cause != nil {
		f(s.cause)
		return
	}
	s.began = append(s.began, f)
	s.dial()
	if s.state == up {
		s.tellBegan(nil)
	}
}

func (s *session) tellBegan(err error) {
	began := s.began
	s.began = nil
	for _, f := range began {
		f(err)
	}
}

func (s *session) frame(f frame) error {
	s.heard = s.e.now
	switch f.kind {
	case kindGranted:
		return s.granted(f)
	case kindStop:
		if x := s.find(f.id); x != nil {
			x.shut = true
		}
		return nil
	case kindResult, kindProbeInfo:
		return s.result(f)
	case kindForget:
		return s.forget(f)
	case kindPong, kindData:
		return nil
	case kindBye:
		return wire.Goodbye(f.body)
	}
	return fmt.Errorf("message of kind %d from a target: %w", f.kind, errProtocol)
}

// data takes bytes of a read.
func (s *session) data(f frame) {
	if x := s.find(f.id); x != nil && x.state == moving {
		x.mover.data(f.offset, f.body)
	}
}

// direct reports whether the devices of both ends access each other's memory.
func (s *session) direct() bool { return s.w.direct && s.t.direct }

// inFlight counts pieces on their way.
func (s *session) inFlight() (n int) {
	for _, x := range s.xfers {
		n += x.pieces
	}
	return n
}

// call sends a request; done is called once, with the answer or with why there is none.
func (s *session) call(f frame, done func(f frame, err error)) uint64 {
	s.lastID++
	f.id = s.lastID
	s.calls[f.id] = done
	s.port.send(f)
	return f.id
}

// result handles the last answer to a call.
func (s *session) result(f frame) error {
	done := s.calls[f.id]
	if done == nil {
		return fmt.Errorf("answer to %d, which was not asked: %w", f.id, errProtocol)
	}
	delete(s.calls, f.id)
	done(f, wire.ResultError(s.remote.Name, f.status, f.body))
	return nil
}

func (s *session) find(id uint64) *xfer {
	for _, x := range s.xfers {
		if x.id == id {
			return x
		}
	}
	return nil
}

// granted handles the target's permission to access memory.
func (s *session) granted(f frame) error {
	x := s.find(f.id)
	if x == nil || x.state != asking {
		return fmt.Errorf("permit for %d, which did not request one: %w", f.id, errProtocol)
	}
	if !s.direct() {
		return x.start()
	}
	where, keys, err := parseElsewhere(f.body, x.job.Remote)
	if err != nil {
		return err
	}
	x.where = where
	rs, err := parseRegions(keys)
	if err != nil {
		return err
	}
	if len(s.keys)+len(rs) > s.t.host.Limits().Regions {
		return fmt.Errorf("more than %d regions: %w", len(s.keys), errProtocol)
	}
	for _, r := range rs {
		if s.keys[r.base.Addr] != nil {
			return fmt.Errorf("region %s was handed over before: %w", r.base, errProtocol)
		}
		key, err := s.port.ep.Unpack(r.key)
		if err != nil {
			return err
		}
		s.keys[r.base.Addr] = &remoteRegion{base: r.base, addr: r.addr, key: key}
	}
	return x.start()
}

// region returns the granted region that covers a descriptor, or nil.
func (s *session) region(d nixl.Desc) *remoteRegion {
	for _, r := range s.keys {
		if r.base.Covers(d) {
			return r
		}
	}
	return nil
}

// forget lets go of a region that its owner has deregistered.
func (s *session) forget(f frame) error {
	if len(f.body) != wire.DescBytes {
		return fmt.Errorf("forgotten region of %d bytes: %w", len(f.body), errProtocol)
	}
	addr := wire.ParseDesc(f.body).Addr
	if r := s.keys[addr]; r != nil {
		delete(s.keys, addr)
		s.unused = append(s.unused, r.key)
	}
	return nil
}

// closeUnused closes keys once no transfer can use them.
func (s *session) closeUnused() {
	if len(s.unused) == 0 || slices.ContainsFunc(s.xfers, func(x *xfer) bool { return x.state == moving }) {
		return
	}
	for _, k := range s.unused {
		k.Close()
	}
	s.unused = nil
}

func (s *session) step() (busy bool) {
	for _, x := range slices.Clone(s.xfers) { // they leave the list
		busy = x.step() || busy
		if s.state == ended {
			return true
		}
	}
	s.closeUnused()
	if s.state == leaving && s.inFlight() == 0 {
		if !s.bye {
			s.bye = true
			s.port.send(frame{kind: kindBye, body: []byte(wire.LastWord(s.cause))})
			return true
		}
		if s.port.flushed() {
			s.end()
			return true
		}
	}
	return busy
}

func (s *session) tick(now time.Time) {
	switch {
	case s.state == leaving && now.After(s.deadline):
		s.end()
	case s.word != nil && now.After(s.deadline):
		s.broken(wire.Goodbye(s.word))
	case s.state == up && now.Sub(s.heard) > s.silence:
		s.broken(fmt.Errorf("peer is silent for %s: %w", s.silence, nixl.ErrRemoteDisconnect))
	case s.state == up && now.Sub(s.pinged) >= min(max(s.silence/4, minPing), maxPing):
		s.pinged = now
		s.port.send(frame{kind: kindPing})
	}
}

// broken ends the session because the connection failed.
func (s *session) broken(cause error) {
	if s.state == leaving {
		s.end()
		return
	}
	if s.state == ended {
		return
	}
	if s.word != nil {
		cause = wire.Goodbye(s.word)
	}
	if nixl.StatusOf(cause) != nixl.ErrRemoteDisconnect {
		cause = fmt.Errorf("%w: %w", nixl.ErrRemoteDisconnect, cause) // its status counts, not one inside of cause
	}
	s.cause, s.lost = fmt.Errorf("peer %q: %w", s.remote.Name, cause), true
	s.end()
}

// parted waits a little for the answers that the target sent before it closed.
func (s *session) parted(word []byte) {
	if s.state != up {
		s.broken(wire.Goodbye(word))
		return
	}
	s.word, s.deadline = word, s.e.now.Add(flushTime)
	s.port.parted, s.port.hot = true, true
}

// stop ends the session because this agent wants it to: pieces on their way are waited
// for, a little, and the target is told.
func (s *session) stop(cause error) {
	if s.state == leaving || s.state == ended {
		return
	}
	s.cause = cause
	if s.state != up {
		s.end()
		return
	}
	s.state, s.deadline = leaving, s.e.now.Add(flushTime)
	for _, x := range slices.Clone(s.xfers) {
		x.cancel(cause)
	}
	s.port.hot = true
	s.failWaiting()
}

// end closes the connection. Local memory is not touched any more then, and everything
// that waits ends.
func (s *session) end() {
	if s.state == ended {
		return
	}
	s.state = ended
	for _, r := range s.keys {
		r.key.Close()
	}
	for _, k := range s.unused {
		k.Close()
	}
	s.keys, s.unused = nil, nil
	for _, x := range s.xfers {
		if x.mover != nil {
			x.mover.abandon()
		}
	}
	if s.bye {
		leave(s.socket, wire.LastWord(s.cause))
	}
	if s.port != nil {
		s.port.close(s.inFlight() > 0)
	}
	if s.cancel != nil {
		s.cancel()
	}
	if s.socket != nil {
		_ = s.socket.Close()
	}
	s.failWaiting()
	s.tellBegan(s.cause)
	for _, x := range s.xfers {
		x.finish(s.cause)
	}
	s.xfers = nil
	calls := s.calls
	s.calls = map[uint64]func(frame, error){}
	for _, done := range calls {
		done(frame{}, s.cause)
	}
	if s.lost {
		s.t.host.PeerDown(s.remote, s.cause)
	}
	s.t.forget(s)
}

func (s *session) failWaiting() {
	waiting, notes := s.waiting, s.notes
	s.waiting, s.notes = nil, nil
	for _, x := range waiting {
		x.finish(s.cause)
	}
	for _, n := range notes {
		n.done(s.cause)
	}
}

// notify queues a notification; done is called once, unless it was unqueued.
func (s *session) notify(n *note) {
	if s.cause != nil {
		n.done(s.cause)
		return
	}
	s.notes = append(s.notes, n)
	s.dial()
	s.pumpNotes()
}

// unqueue takes back a notification that was not sent yet.
func (s *session) unqueue(n *note) {
	s.notes = slices.DeleteFunc(s.notes, func(o *note) bool { return o == n })
}

// pumpNotes sends notifications while the window has room.
func (s *session) pumpNotes() {
	for s.state == up && len(s.notes) > 0 && s.takeWindow() {
		n := s.notes[0]
		s.notes = s.notes[1:]
		s.call(frame{kind: kindNotify, body: n.msg}, func(_ frame, err error) {
			s.freeWindow()
			n.done(err)
		})
	}
}

func (s *session) takeWindow() bool {
	if s.noteOut >= int(s.w.window) {
		return false
	}
	s.noteOut++
	return true
}

func (s *session) freeWindow() {
	s.noteOut--
	s.pumpNotes()
}

// probe asks for scratch memory.
func (s *session) probe(done func(nixl.Probe, error)) {
	s.connected(func(err error) {
		if err != nil {
			done(nixl.Probe{}, err)
			return
		}
		s.call(frame{kind: kindProbe}, func(f frame, err error) {
			if err != nil {
				done(nixl.Probe{}, err)
				return
			}
			done(wire.ParseProbe(f.body))
		})
	})
}

func (s *session) closeProbe(id nixl.TicketID) {
	if s.state == up {
		s.port.send(frame{kind: kindProbeClose, body: id[:]})
	}
}
