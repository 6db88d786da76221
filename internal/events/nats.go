package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/protocol"
)

const (
	pingTimeout = 2 * time.Second // for Ping without a deadline
	closeFlush  = time.Second     // for the outbox at Close
	maxEnvelope = 256             // bytes around an event's payload
)

// NATS is the [Bus] over a NATS server. Make one with [NewNATS].
type NATS struct {
	nc  *nats.Conn
	log *slog.Logger

	mu      sync.Mutex // also keeps the outbox in the order of the numbers
	numbers numbering
	outbox  chan message
	queued  int64 // bytes in the outbox
	subs    map[*subscriber]struct{}
	closed  bool
	online  chan struct{} // closed while connected; replaced at each disconnect
	offline chan struct{} // closed while not connected; replaced at each connect
	since   time.Time     // of the disconnect
	reason  string

	// These answer frequent queries. The library's own getters block while it writes to a
	// full socket.
	up         atomic.Bool
	maxPayload atomic.Int64

	closing  chan struct{}  // closed by Close: the sender empties the outbox and ends
	handlers sync.WaitGroup // of subscriptions
	sender   sync.WaitGroup
	calls    sync.WaitGroup // requests of queues
	gone     chan struct{}  // closed when the client library is done

	published, received, malformed, dropped atomic.Uint64
}

var _ Bus = (*NATS)(nil)

// NewNATS returns a bus that connects in the background, now and after every disconnect,
// and retries without limit. It fails only for a configuration that can never work. A nil
// log discards.
func NewNATS(cfg Config, log *slog.Logger) (*NATS, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.Outbox <= 0 {
		cfg.Outbox = defaultOutbox
	}
	opts, err := cfg.Options()
	if err != nil {
		return nil, err
	}
	n := &NATS{
		log:     log,
		numbers: make(numbering),
		outbox:  make(chan message, cfg.Outbox),
		subs:    make(map[*subscriber]struct{}),
		online:  make(chan struct{}),
		offline: make(chan struct{}),
		since:   time.Now(),
		closing: make(chan struct{}),
		gone:    make(chan struct{}),
	}
	close(n.offline)
	opts = append(opts,
		nats.ConnectHandler(func(nc *nats.Conn) { n.connected(nc) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { n.connected(nc) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.stillDown(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { n.asyncError(sub, err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(n.gone) }),
	)
	n.nc, err = nats.Connect(cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("nats %s: %w", cfg.URL, err)
	}
	if n.nc.IsConnected() {
		n.connected(n.nc) // the callback may come late
	}
	n.sender.Go(n.send)
	return n, nil
}

// Publish implements [Bus].
func (n *NATS) Publish(ctx context.Context, subject string, v any) error {
	payload, err := protocol.Marshal(v)
	if err != nil {
		return fmt.Errorf("publish on %s: %w", subject, err)
	}
	return n.publish(subject, len(payload)+maxEnvelope, func() []byte {
		// A dropped event keeps its number, so that subscribers notice the loss.
		id, seq := n.numbers.take(subject)
		return encodeEnvelope(id, seq, time.Now(), topicOf(subject), payload)
	})
}

// PublishBytes implements [Bus].
func (n *NATS) PublishBytes(ctx context.Context, subject string, data []byte) error {
	return n.publish(subject, len(data), func() []byte { return bytes.Clone(data) })
}

// publish puts a message of at most size bytes into the outbox. encode is called in the
// order of the messages.
func (n *NATS) publish(subject string, size int, encode func() []byte) error {
	if err := checkSubject(subject); err != nil {
		return err
	}
	if limit := n.maxPayload.Load(); limit > 0 && int64(size) > limit {
		return fmt.Errorf("publish on %s: %d bytes, limit %d: %w", subject, size, limit, ErrTooLarge)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("publish on %s: %w", subject, ErrClosed)
	}
	m := message{subject, encode()}
	if n.queued+int64(len(m.data)) <= maxOutboxBytes {
		select {
		case n.outbox <- m:
			n.queued += int64(len(m.data))
			return nil
		default:
		}
	}
	n.dropped.Add(1)
	return fmt.Errorf("publish on %s: %w", subject, ErrDropped)
}

// send moves events from the outbox to the connection.
func (n *NATS) send() {
	for {
		select {
		case m := <-n.outbox:
			n.sendOne(m)
		case <-n.closing:
			for {
				select {
				case m := <-n.outbox:
					n.sendOne(m)
				default:
					return
				}
			}
		}
	}
}

func (n *NATS) sendOne(m message) {
	n.mu.Lock()
	n.queued -= int64(len(m.data))
	n.mu.Unlock()
	for {
		err := n.nc.Publish(m.subject, m.data)
		switch {
		case err == nil:
			n.published.Add(1)
			return
		case errors.Is(err, nats.ErrReconnectBufExceeded):
			if n.waitOnline(n.closing) {
				continue
			}
		default:
			n.log.Warn("event not published", "subject", m.subject, "err", err)
		}
		n.dropped.Add(1)
		return
	}
}

// Subscribe implements [Bus].
func (n *NATS) Subscribe(ctx context.Context, pattern string, h func(Event)) (Subscription, error) {
	return n.subscribe(ctx, pattern, newSubscriber(h, &n.malformed, &n.received))
}

// SubscribeBytes implements [Bus].
func (n *NATS) SubscribeBytes(ctx context.Context, pattern string, h func(Message)) (Subscription, error) {
	return n.subscribe(ctx, pattern, newRawSubscriber(h, &n.received))
}

func (n *NATS) subscribe(ctx context.Context, pattern string, s *subscriber) (Subscription, error) {
	if err := checkPattern(pattern); err != nil {
		return nil, err
	}
	ns, err := n.nc.Subscribe(pattern, func(m *nats.Msg) { s.offer(message{m.Subject, m.Data}) })
	if errors.Is(err, nats.ErrConnectionClosed) {
		err = ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", pattern, err)
	}
	s.leave = func() {
		if err := ns.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			n.log.Debug("unsubscribe failed", "subject", pattern, "err", err)
		}
		n.mu.Lock()
		delete(n.subs, s)
		n.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("subscribe to %s: %w", pattern, ErrClosed) // and with the connection, ns
	}
	n.subs[s] = struct{}{}
	s.start(ctx, &n.handlers)
	return s, nil
}

// Connected implements [Bus].
func (n *NATS) Connected() bool { return n.up.Load() }

// Ping implements [Bus].
func (n *NATS) Ping(ctx context.Context) (time.Duration, error) {
	if !n.Connected() {
		return 0, fmt.Errorf("ping: %w", ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	start := time.Now()
	if err := n.call(ctx, func() error { return n.nc.FlushWithContext(ctx) }); err != nil {
		return 0, fmt.Errorf("ping: %w: %w", ErrUnavailable, err)
	}
	return time.Since(start), nil
}

func (n *NATS) reconnects() uint64 { return n.nc.Stats().Reconnects }

// Stats implements [Bus].
func (n *NATS) Stats() Stats {
	st := Stats{
		Published:  n.published.Load(),
		Received:   n.received.Load(),
		Dropped:    n.dropped.Load(),
		Malformed:  n.malformed.Load(),
		Reconnects: n.reconnects(),
		Outbox:     len(n.outbox),
		Server:     n.nc.ConnectedUrlRedacted(),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	st.DisconnectedSince, st.LastError = n.since, n.reason
	return st
}

// Close implements [Bus].
func (n *NATS) Close() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	var subs []*subscriber
	for s := range n.subs {
		subs = append(subs, s)
	}
	n.mu.Unlock()
	if first {
		close(n.closing)
	}
	n.sender.Wait()
	if first && n.nc.IsConnected() {
		if err := n.nc.FlushTimeout(closeFlush); err != nil {
			n.log.Debug("last events not flushed", "err", err)
		}
	}
	for _, s := range subs {
		s.Close()
	}
	n.handlers.Wait()
	n.nc.Close()
	<-n.gone
	n.up.Store(false)
	n.calls.Wait()
	return nil
}
