package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// admit starts serving a connection.
func (t *transport) admit(nc net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = nc.Close()
		return
	}
	t.greeting[nc] = struct{}{}
	stranger := t.strangers.Enter(nc)
	t.wg.Go(func() {
		defer func() { _ = nc.Close() }()
		t.serve(nc, stranger)
	})
}

// place has one of the places for peers taken by a connection that has proved itself.
func (t *transport) place() (giveBack func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.accepted >= t.opts.MaxInbound {
		return nil, wire.ErrFull
	}
	t.accepted++
	return func() {
		t.mu.Lock()
		t.accepted--
		t.mu.Unlock()
	}, nil
}

// serve runs one inbound connection from the handshake to its end.
func (t *transport) serve(raw net.Conn, stranger *handshake.Guest) {
	setBuffers(raw, t.opts.SocketBuffer)
	nc, _, err := stranger.Accept(t.shake(t.secure()), time.Now().Add(t.opts.ConnectTimeout))
	var h hello
	var br *bufio.Reader
	if err = wire.HandshakeError(err); err == nil {
		var giveBack func()
		if giveBack, err = t.place(); err == nil {
			defer giveBack()
			h, br, err = t.welcome(nc)
		} else {
			_, _ = nc.Write(refusal(err))
		}
	}
	t.mu.Lock()
	delete(t.greeting, raw)
	closed := t.closed
	t.mu.Unlock()
	switch {
	case closed:
		return
	case err != nil:
		wire.Refuse(t.host, &t.refusals, Name, fmt.Errorf("from %s: %w", raw.RemoteAddr(), err))
		return
	}
	c := newTarget(t, newConn(nc, br, t.opts.SilenceTimeout, 0))
	c.staged, c.sums = t.opts.TLS != nil, h.checksums || t.opts.Checksums
	if err := t.join(h, c); err != nil {
		t.host.Refused(nixl.RefusedHello)
		_, _ = nc.Write(refusal(err))
		return
	}
	cause := errors.New("connection lost")
	w := t.limits()
	w.checksums = c.sums
	if _, err := nc.Write(frame{header{kind: kindWelcome}, w.encode()}.append(nil)); err == nil {
		cause = c.run()
	}
	c.in.end(cause)
	c.abandon()
	t.leave(c)
}

// welcome reads and checks the hello.
func (t *transport) welcome(nc net.Conn) (hello, *bufio.Reader, error) {
	if err := nc.SetDeadline(time.Now().Add(t.opts.ConnectTimeout)); err != nil {
		return hello{}, nil, err
	}
	br := bufio.NewReader(nc)
	hd, body, err := readGreeting(br)
	switch {
	case err != nil:
		return hello{}, nil, err
	case hd.kind != kindHello:
		return hello{}, nil, fmt.Errorf("frame of kind %d instead of a hello: %w", hd.kind, errProtocol)
	}
	h, err := parseHello(body)
	if err == nil {
		err = wire.Admit(h.token, t.token, h.ends, t.host.Self())
	}
	if err != nil {
		_, _ = nc.Write(refusal(err))
		return hello{}, nil, err
	}
	return h, br, nil
}

// readGreeting reads one small frame.
func readGreeting(br *bufio.Reader) (header, []byte, error) {
	var b [headerBytes]byte
	if _, err := io.ReadFull(br, b[:]); err != nil {
		return header{}, nil, fmt.Errorf("read hello: %w", err)
	}
	h := parseHeader(&b)
	if h.length > helloBytes {
		return header{}, nil, fmt.Errorf("hello of %d bytes: %w", h.length, errProtocol)
	}
	body := make([]byte, h.length)
	if _, err := io.ReadFull(br, body); err != nil {
		return header{}, nil, fmt.Errorf("read hello: %w", err)
	}
	return h, body, nil
}

func refusal(err error) []byte {
	return frame{header{kind: kindResult, status: nixl.StatusOf(err)}, []byte(err.Error())}.append(nil)
}

func (t *transport) limits() welcome {
	l := t.host.Limits()
	return welcome{
		silence: t.opts.SilenceTimeout, open: maxOpen, descs: uint32(l.Descs), openDescs: uint32(max(maxOpenDescs, l.Descs)),
		notifySize: uint32(l.NotifySize), windowCount: windowCount, windowBytes: windowBytes,
	}
}

// inboundKey names a peer's session.
type inboundKey struct {
	name, incarnation string
	generation        uint64
}

// inbound is the target's side of a peer's session.
type inbound struct {
	t    *transport
	key  inboundKey
	from nixl.Identity

	mu        sync.Mutex
	up        bool
	ended     bool
	conns     map[*target]struct{}
	gone      chan struct{} // closed when ended and the last connection is gone
	noteCount int           // notifications not accepted by the agent yet
	noteBytes int
}

// join puts a connection into its session. The newest session of a peer, by name,
// is the only one: older ones end before it begins, so that bytes still on their way
// from a connection that was lost, or from a process that was restarted, do not
// arrive after newer ones.
func (t *transport) join(h hello, c *target) error {
	key := inboundKey{h.ends.From.Name, h.ends.From.Incarnation, h.generation}
	var old []*inbound
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return fmt.Errorf("agent closes: %w", nixl.ErrRemoteDisconnect)
	}
	in := t.inbound[key]
	if in == nil {
		in = &inbound{t: t, key: key, from: h.ends.From, conns: map[*target]struct{}{}, gone: make(chan struct{})}
		t.inbound[key] = in
	}
	for k, other := range t.inbound {
		if k.name != key.name || other == in {
			continue
		}
		if k.incarnation == key.incarnation && k.generation > key.generation {
			t.mu.Unlock()
			return fmt.Errorf("a newer session exists: %w", nixl.ErrRemoteDisconnect)
		}
		old = append(old, other)
	}
	t.mu.Unlock()
	for _, o := range old {
		o.end(fmt.Errorf("replaced by a newer session of incarnation %s: %w", key.incarnation, nixl.ErrRemoteDisconnect))
		<-o.gone // soon: its connections are closed
	}
	c.in = in

	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended || t.isClosed() { // Close says bye to those that are in before it
		t.drop(in)
		return fmt.Errorf("session has ended: %w", nixl.ErrRemoteDisconnect)
	}
	in.conns[c] = struct{}{}
	if !in.up {
		in.up = true
		t.host.InboundUp(Name, in.from)
	}
	return nil
}

// leave takes a connection that has ended out of its session.
func (t *transport) leave(c *target) {
	in := c.in
	in.mu.Lock()
	delete(in.conns, c)
	empty := len(in.conns) == 0
	in.mu.Unlock()
	if empty {
		close(in.gone)
		t.drop(in)
	}
}

func (t *transport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

func (t *transport) drop(in *inbound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inbound[in.key] == in {
		delete(t.inbound, in.key)
	}
}

// end breaks all connections of the session, because one has ended. After bye, each ends
// with a last word of its own: the peer must not see the end of one before.
func (in *inbound) end(cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return
	}
	in.ended = true
	if len(in.conns) == 0 {
		close(in.gone) // its first connection is not in yet, and will not get in
	}
	if !errors.Is(cause, errFlushed) {
		for c := range in.conns {
			c.fail(cause)
		}
	}
	if in.up {
		if errors.Is(cause, wire.ErrOrderly) || errors.Is(cause, errFlushed) {
			cause = nil
		}
		in.t.host.InboundDown(Name, in.from, cause)
	}
}

// bye closes the session from this side.
func (in *inbound) bye(why string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for c := range in.conns {
		c.bye(why)
	}
}

// deliver hands a notification to the agent; done is called when it is accepted.
func (in *inbound) deliver(msg []byte, done func(error)) error {
	in.mu.Lock()
	if in.noteCount >= 2*windowCount || in.noteBytes > 2*windowBytes {
		in.mu.Unlock()
		return fmt.Errorf("more notifications than the window allows: %w", errProtocol)
	}
	in.noteCount++
	in.noteBytes += len(msg)
	in.mu.Unlock()
	n := len(msg)
	in.t.host.Deliver(in.from.Name, msg, func(err error) {
		in.mu.Lock()
		in.noteCount--
		in.noteBytes -= n
		in.mu.Unlock()
		done(err)
	})
	return nil
}
