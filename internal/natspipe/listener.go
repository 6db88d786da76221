package natspipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/dynctl/dynctl/internal/events"
)

// Listener accepts pipes. Make one with [Hub.Listen].
type Listener struct {
	hub     *Hub
	subject string
	leave   func()
	arrived chan *Conn
	done    chan struct{}

	mu     sync.Mutex
	closed bool // nothing comes into arrived any more
}

var _ net.Listener = (*Listener)(nil)

// Listen accepts pipes at a subject of its own, which no other process has. Until ctx ends,
// it waits for NATS to know that, so that whoever is told the subject can dial it. Without a
// connection it listens from when there is one. A hub has one listener.
func (h *Hub) Listen(ctx context.Context) (*Listener, error) {
	l, err := h.listenAt(h.root)
	if err != nil {
		return nil, err
	}
	select {
	case <-h.bus.Online():
		_, err = h.bus.Ping(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		h.cfg.Log.Warn("pipe: NATS cannot be reached, and nobody reaches this process over it", "err", err)
	}
	return l, nil
}

// listenAt listens at a subject. Were it the same in several processes, each pipe would go to
// one of them: NATS gives a message to one member of a group.
func (h *Hub) listenAt(subject string) (*Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil {
		return nil, errors.New("listen: this process listens already")
	}
	if err := h.startLocked(); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", subject, err)
	}
	l := &Listener{hub: h, subject: subject, arrived: make(chan *Conn, backlog), done: make(chan struct{})}
	leave, err := h.bus.Receive(subject, "pipes", l.receive)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", subject, err)
	}
	l.leave, h.listener = leave, l
	return l, nil
}

// receive takes a request for a pipe.
func (l *Listener) receive(m events.CoreMessage) {
	h, payload, err := parse(m.Data)
	if err != nil || h.kind != kindOpen || h.number != 0 || !isSubject(m.Reply, 2) {
		l.hub.cfg.Log.Debug("pipe: foreign message", "subject", m.Subject)
		return
	}
	if len(payload) == 0 || payload[0] != version {
		l.hub.refuse(m.Reply, "another version of pipes")
		return
	}
	c := l.hub.newConn(m.Reply)
	c.limit, c.expected = h.allowed, 1
	close(c.opened)
	if !l.open(c) {
		l.hub.refuse(m.Reply, "no room for another pipe")
		c.fail(ErrRefused, "")
		_ = c.Close() // never fails
	}
}

// open adds a new pipe and offers it. The hub's beats wait until the peer has been told: the acceptance is
// the first message that it hears.
func (l *Listener) open(c *Conn) bool {
	c.out.Lock()
	defer c.out.Unlock()
	return l.hub.add(c) == nil && l.offer(c)
}

// offer tells the peer of a new pipe, and hands it to Accept. The caller holds the pipe's out.
func (l *Listener) offer(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.arrived) == cap(l.arrived) || c.sendLocked(kindAccept, nil) != nil {
		return false
	}
	l.arrived <- c
	return true
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.arrived:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. Pipes that were accepted stay.
func (l *Listener) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if !first {
		return nil
	}
	close(l.done)
	l.leave()
	for {
		select {
		case c := <-l.arrived:
			_ = c.Close() // never fails
		default:
			return nil
		}
	}
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return Addr(l.subject) }
