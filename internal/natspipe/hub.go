package natspipe

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/events"
)

// What a process may have unread at NATS is bounded below the 64 MiB at which a server ends
// a connection, and the client library drops messages: maxPipes*baseWindow + extraWindow are
// 48 MiB.
const (
	maxPipes    = 1024     // of a hub
	baseWindow  = 32 << 10 // bytes that a new pipe allows its peer to be ahead
	extraWindow = 16 << 20 // more bytes, for all pipes that turn out to need them
	maxWindow   = 1 << 20  // of one pipe
	maxChunk    = 64 << 10 // bytes of one message
	keepBuffer  = 64 << 10 // larger buffers are released when empty
	backlog     = 256      // pipes that wait for Accept
	maxErrands  = 4096

	firstAttempt = time.Second // of a dial; the next ones last longer
)

// Config says how a [Hub] watches its pipes.
type Config struct {
	// Beat is the interval at which each pipe says that it lives, and at which it notices
	// that its peer left NATS. Default 1 s.
	Beat time.Duration
	// Missed is the number of beats without a message from the peer after which it counts as
	// dead. Default 7.
	Missed int
	Log    *slog.Logger // nil discards
}

func (c Config) withDefaults() Config {
	if c.Beat <= 0 {
		c.Beat = time.Second
	}
	if c.Missed <= 0 {
		c.Missed = 7
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Hub makes pipes over one connection to NATS.
type Hub struct {
	bus  *events.NATS
	cfg  Config
	root string // of the subjects where this process receives

	mu       sync.Mutex
	pipes    map[string]*Conn // by token
	listener *Listener
	leave    func() // ends the subscription; nil before the first pipe
	extra    int    // of extraWindow that no pipe has
	errands  []errand
	closed   bool

	poke chan struct{} // there are errands
	done chan struct{} // closed by Close
	work sync.WaitGroup
}

// errand is a message that the hub sends for a pipe, where waiting for the socket is out of
// place.
type errand struct {
	conn *Conn
	kind kind
	text string
}

// New returns a hub over bus, which the caller closes after it. Nothing is sent or received
// before the first Dial or Listen.
func New(bus *events.NATS, cfg Config) *Hub {
	return &Hub{
		bus: bus, cfg: cfg.withDefaults(), root: Root + "." + rand.Text(), extra: extraWindow,
		pipes: make(map[string]*Conn), poke: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Dial opens a pipe to the listener at a subject. It waits for NATS, if there is no
// connection, and for the listener, until ctx ends. It fails with ErrRefused if nobody
// listens.
func (h *Hub) Dial(ctx context.Context, subject string) (*Conn, error) {
	if !isSubject(subject, 1) {
		return nil, fmt.Errorf("dial %q: no subject of a listener", subject)
	}
	select {
	case <-h.bus.Online():
	case <-ctx.Done():
		return nil, fmt.Errorf("dial %s: %w: %w", subject, events.ErrUnavailable, context.Cause(ctx))
	case <-h.done:
	}
	// The request or its answer may be lost, as when NATS restarts or the listener ends.
	for wait := firstAttempt; ; wait *= 2 {
		attempt, cancel := context.WithTimeout(ctx, wait)
		c, err := h.dial(attempt, subject)
		again := attempt.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			return c, nil
		}
		if !again {
			return nil, fmt.Errorf("dial %s: %w", subject, err)
		}
	}
}

func (h *Hub) dial(ctx context.Context, subject string) (*Conn, error) {
	c := h.newConn("")
	err := h.add(c)
	if err != nil {
		return nil, err
	}
	if err := c.open(subject); err != nil {
		_ = c.Close()
		return nil, err
	}
	select {
	case <-c.opened:
		return c, nil
	case <-c.over:
		c.mu.Lock()
		err = c.err
		c.mu.Unlock()
		if err == nil {
			err = net.ErrClosed
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = c.Close()
	return nil, err
}

// open asks the listener at a subject for its end.
func (c *Conn) open(subject string) error {
	c.out.Lock()
	defer c.out.Unlock()
	data := header{kindOpen, 0, baseWindow}.append(nil)
	if err := c.hub.bus.Send(subject, c.own, append(data, version)); err != nil {
		return err
	}
	c.next = 1
	return nil
}

// newConn makes a pipe, which the hub has once it is added. Without a remote end, it is about to be
// dialed.
func (h *Hub) newConn(remote string) *Conn {
	token := rand.Text()
	c := &Conn{
		hub: h, token: token, own: h.root + "." + token, remote: remote,
		opened: make(chan struct{}), over: make(chan struct{}),
		window: baseWindow, allowed: baseWindow,
	}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	return c
}

// add has the hub pass messages to a pipe, and send beats on it.
func (h *Hub) add(c *Conn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.startLocked(); err != nil {
		return err
	}
	if len(h.pipes) >= maxPipes {
		return fmt.Errorf("%w: this process has %d pipes", ErrRefused, maxPipes)
	}
	h.pipes[c.token] = c
	return nil
}

func (h *Hub) startLocked() (err error) {
	if h.closed {
		return net.ErrClosed
	}
	if h.leave != nil {
		return nil
	}
	if h.leave, err = h.bus.Receive(h.root+".*", "", h.dispatch); err != nil {
		return err
	}
	h.work.Go(h.run)
	return nil
}

// dispatch passes a message to its pipe.
func (h *Hub) dispatch(m events.CoreMessage) {
	token := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	h.mu.Lock()
	c := h.pipes[token]
	h.mu.Unlock()
	if c != nil {
		c.receive(m)
		return
	}
	// The peer of a pipe that is no more may not know. Its beats have a subject for the
	// answer.
	if head, _, err := parse(m.Data); err == nil && (head.kind == kindBeat || head.kind == kindAsk || head.kind == kindAccept) && isSubject(m.Reply, 2) {
		h.refuse(m.Reply, "no such pipe")
	}
}

// refuse tells a peer that there is no pipe for it here.
func (h *Hub) refuse(to, why string) {
	h.tell(errand{&Conn{hub: h, remote: to, closed: true}, kindReset, why})
}

// tell has the hub send a message soon. Too many at a time are dropped: the beats then show
// what they would have told.
func (h *Hub) tell(e errand) {
	h.mu.Lock()
	if len(h.errands) < maxErrands {
		h.errands = append(h.errands, e)
	}
	h.mu.Unlock()
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// run sends beats and errands until Close.
func (h *Hub) run() {
	beat := time.NewTicker(h.cfg.Beat)
	defer beat.Stop()
	change, online := h.bus.Offline(), true
	for {
		select {
		case <-h.poke:
			h.runErrands()
		case <-beat.C:
			h.beat()
		case <-change:
			// Messages may have been lost with the connection. Each peer is asked, so that
			// both sides soon know.
			if online = !online; online {
				for _, c := range h.all() {
					_ = c.send(kindAsk, nil)
				}
				change = h.bus.Offline()
			} else {
				change = h.bus.Online()
			}
		case <-h.done:
			h.runErrands()
			return
		}
	}
}

func (h *Hub) runErrands() {
	h.mu.Lock()
	todo := h.errands
	h.errands = nil
	h.mu.Unlock()
	for _, e := range todo {
		if err := e.conn.send(e.kind, []byte(e.text)); err != nil {
			h.cfg.Log.Debug("pipe: message not sent", "to", e.conn.RemoteAddr(), "err", err)
		}
	}
}

// beat sends a beat on each pipe, unless it sends something else just now.
func (h *Hub) beat() {
	for _, c := range h.all() {
		if c.beat() && c.out.TryLock() {
			_ = c.sendLocked(kindBeat, nil)
			c.out.Unlock()
		}
	}
}

func (h *Hub) all() []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Conn, 0, len(h.pipes))
	for _, c := range h.pipes {
		all = append(all, c)
	}
	return all
}

func (h *Hub) remove(c *Conn, extra int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pipes, c.token)
	h.extra += extra
}

func (h *Hub) takeExtra(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.extra)
	h.extra -= n
	return n
}

// chunk is the largest number of bytes in one message now.
func (h *Hub) chunk() int {
	if limit := h.bus.MaxPayload(); limit > headerLen {
		return min(maxChunk, int(limit)-headerLen)
	}
	return 1 << 10
}

// Close ends all pipes and the listener. Peers are told, as far as NATS can be reached.
func (h *Hub) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.work.Wait()
		return nil
	}
	h.closed = true
	ln, leave := h.listener, h.leave
	h.mu.Unlock()
	if ln != nil {
		_ = ln.Close() // never fails
	}
	for _, c := range h.all() {
		_ = c.Close() // never fails
	}
	close(h.done)
	h.work.Wait()
	if leave != nil {
		leave()
	}
	return nil
}
