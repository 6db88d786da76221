package events

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Memory is a [Bus] inside one process. [NewMemory] makes the first bus; buses made by
// Join exchange events with it.
type Memory struct {
	wire *memoryWire

	mu      sync.Mutex
	numbers numbering
	subs    map[*subscriber]struct{}
	closed  bool
	over    chan struct{} // closed by Close

	handlers sync.WaitGroup // of subscriptions

	published, received, malformed atomic.Uint64
}

var _ Bus = (*Memory)(nil)

// memoryWire connects the buses.
type memoryWire struct {
	mu       sync.RWMutex
	subs     map[*subscriber]string    // value: the pattern
	journals map[string]*memoryJournal // by subject
}

// NewMemory returns a bus on a wire of its own.
func NewMemory() *Memory {
	return (&Memory{wire: &memoryWire{subs: make(map[*subscriber]string), journals: make(map[string]*memoryJournal)}}).Join()
}

// Join returns another bus on the same wire, as if in another process.
func (m *Memory) Join() *Memory {
	return &Memory{wire: m.wire, numbers: make(numbering), subs: make(map[*subscriber]struct{}), over: make(chan struct{})}
}

// Publish implements [Bus]. There is no outbox: events go straight to the subscribers'
// queues.
func (m *Memory) Publish(ctx context.Context, subject string, v any) error {
	payload, err := protocol.Marshal(v)
	if err != nil {
		return fmt.Errorf("publish on %s: %w", subject, err)
	}
	return m.publish(subject, func() []byte {
		id, seq := m.numbers.take(subject)
		return encodeEnvelope(id, seq, time.Now(), topicOf(subject), payload)
	})
}

// PublishBytes implements [Bus].
func (m *Memory) PublishBytes(ctx context.Context, subject string, data []byte) error {
	return m.publish(subject, func() []byte { return bytes.Clone(data) })
}

func (m *Memory) publish(subject string, encode func() []byte) error {
	if err := checkSubject(subject); err != nil {
		return err
	}
	m.mu.Lock() // sequence numbers and deliveries must have the same order
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("publish on %s: %w", subject, ErrClosed)
	}
	m.wire.deliver(message{subject, encode()})
	m.published.Add(1)
	return nil
}

func (w *memoryWire) deliver(msg message) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if j := w.journals[msg.subject]; j != nil {
		j.store("", msg.data)
	}
	w.deliverLocked(msg)
}

func (w *memoryWire) deliverLocked(msg message) {
	for s, pattern := range w.subs {
		if matches(pattern, msg.subject) {
			s.offer(msg)
		}
	}
}

// Subscribe implements [Bus].
func (m *Memory) Subscribe(ctx context.Context, pattern string, h func(Event)) (Subscription, error) {
	return m.subscribe(ctx, pattern, newSubscriber(h, &m.malformed, &m.received))
}

// SubscribeBytes implements [Bus].
func (m *Memory) SubscribeBytes(ctx context.Context, pattern string, h func(Message)) (Subscription, error) {
	return m.subscribe(ctx, pattern, newRawSubscriber(h, &m.received))
}

func (m *Memory) subscribe(ctx context.Context, pattern string, s *subscriber) (Subscription, error) {
	if err := checkPattern(pattern); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("subscribe to %s: %w", pattern, ErrClosed)
	}
	s.leave = func() {
		m.wire.mu.Lock()
		delete(m.wire.subs, s)
		m.wire.mu.Unlock()
		m.mu.Lock()
		delete(m.subs, s)
		m.mu.Unlock()
	}
	m.subs[s] = struct{}{}
	m.wire.mu.Lock()
	m.wire.subs[s] = pattern
	m.wire.mu.Unlock()
	s.start(ctx, &m.handlers)
	return s, nil
}

// Connected implements [Bus].
func (m *Memory) Connected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.closed
}

// Ping implements [Bus].
func (m *Memory) Ping(context.Context) (time.Duration, error) {
	if !m.Connected() {
		return 0, fmt.Errorf("ping: %w", ErrClosed)
	}
	return 0, nil
}

// Stats implements [Bus].
func (m *Memory) Stats() Stats {
	return Stats{
		Published: m.published.Load(),
		Received:  m.received.Load(),
		Malformed: m.malformed.Load(),
		Server:    "memory",
	}
}

// Close implements [Bus].
func (m *Memory) Close() error {
	m.mu.Lock()
	if !m.closed {
		close(m.over)
	}
	m.closed = true
	var subs []*subscriber
	for s := range m.subs {
		subs = append(subs, s)
	}
	m.mu.Unlock()
	for _, s := range subs {
		s.Close()
	}
	m.handlers.Wait()
	return nil
}
