package events

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// memoryJournal is the [Journal] of a subject on the wire of buses in memory. Deliveries hold
// the wire's lock for reading; the journal's own comes after it.
type memoryJournal struct {
	cfg     JournalConfig
	subject string

	mu      sync.Mutex
	first   uint64 // offset of events[0], or of the next event
	events  []kept
	bytes   int64
	ids     map[string]stored
	groups  map[string]*memoryGroup
	changed chan struct{} // closed and replaced when an event is stored
}

// kept is one event.
type kept struct {
	id   string // given to Append, or else its offset
	data []byte // its envelope
	at   time.Time
}

// stored is an id that was used lately.
type stored struct {
	offset uint64
	at     time.Time
}

// joinedJournal is a bus's part in a journal.
type joinedJournal struct {
	*memoryJournal
	bus *Memory
}

var _ Journal = joinedJournal{}

// Journal implements [Bus].
func (m *Memory) Journal(subject string, cfg JournalConfig) (Journal, error) {
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	m.wire.mu.Lock()
	defer m.wire.mu.Unlock()
	j := m.wire.journals[subject]
	if j == nil {
		j = &memoryJournal{subject: subject, first: 1, ids: map[string]stored{}, groups: map[string]*memoryGroup{}, changed: make(chan struct{})}
		m.wire.journals[subject] = j
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cfg = cfg.withDefaults()
	return joinedJournal{j, m}, nil
}

// Append implements [Journal].
func (j joinedJournal) Append(ctx context.Context, id string, v any) (uint64, error) {
	payload, err := protocol.Marshal(v)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	j.bus.mu.Lock() // sequence numbers, offsets and deliveries have the same order
	defer j.bus.mu.Unlock()
	if err == nil && j.bus.closed {
		err = ErrClosed
	}
	if err != nil {
		return 0, fmt.Errorf("append to %s: %w", j.subject, err)
	}
	publisher, seq := j.bus.numbers.take(j.subject)
	msg := message{j.subject, encodeEnvelope(publisher, seq, time.Now(), topicOf(j.subject), payload)}
	return j.bus.wire.deliverOnce(j.memoryJournal, id, msg), nil
}

// deliverOnce stores an event in a journal and delivers it. NATS delivers an event whose id
// was used before, too.
func (w *memoryWire) deliverOnce(j *memoryJournal, id string, msg message) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	offset := j.store(id, msg.data)
	w.deliverLocked(msg)
	return offset
}

// store keeps an event and returns its offset.
func (j *memoryJournal) store(id string, data []byte) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(j.ids, func(_ string, s stored) bool { return now.Sub(s.at) > j.cfg.DedupWindow })
	if s, used := j.ids[id]; used {
		return s.offset
	}
	offset := j.first + uint64(len(j.events))
	if id != "" {
		j.ids[id] = stored{offset, now}
	} else {
		id = strconv.FormatUint(offset, 10)
	}
	k := kept{id, data, now}
	j.events = append(j.events, k)
	j.bytes += int64(len(data))
	j.trimLocked(now)
	for _, g := range j.groups {
		g.hand(offset, k)
	}
	close(j.changed)
	j.changed = make(chan struct{})
	return offset
}

// trimLocked forgets what is too old or too much.
func (j *memoryJournal) trimLocked(now time.Time) {
	for len(j.events) > 0 && (len(j.events) > j.cfg.MaxEvents || j.bytes > j.cfg.MaxBytes || now.Sub(j.events[0].at) > j.cfg.MaxAge) {
		j.bytes -= int64(len(j.events[0].data))
		j.events, j.first = j.events[1:], j.first+1
	}
}

// startLocked returns the offset at which reading begins.
func (j *memoryJournal) startLocked(from Start) uint64 {
	switch {
	case from.New:
		return j.first + uint64(len(j.events))
	case from.Offset > 0:
		return from.Offset
	case !from.Since.IsZero():
		i, _ := slices.BinarySearchFunc(j.events, from.Since, func(k kept, t time.Time) int { return k.at.Compare(t) })
		return j.first + uint64(i)
	}
	return j.first
}

// Read implements [Journal].
func (j joinedJournal) Read(ctx context.Context, from Start, h func(Record) error) error {
	for next := uint64(0); ; {
		j.mu.Lock()
		j.trimLocked(time.Now())
		if next == 0 {
			next = j.startLocked(from)
		}
		var r *Record
		if at := max(next, j.first); at-j.first < uint64(len(j.events)) {
			k := j.events[at-j.first]
			r = &Record{Offset: at, StoredAt: k.at, Lost: at - next}
			next = at + 1
			var err error
			if r.Event, err = decodeEnvelope(j.subject, slices.Clone(k.data)); err != nil {
				j.bus.malformed.Add(1)
				j.mu.Unlock()
				continue
			}
		}
		changed := j.changed
		j.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r != nil:
			if err := h(*r); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-j.bus.over:
			return fmt.Errorf("read %s: %w", j.subject, ErrClosed)
		case <-ctx.Done():
		}
	}
}

// State implements [Journal].
func (j joinedJournal) State(context.Context) (JournalState, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trimLocked(time.Now())
	return JournalState{
		First: j.first, Last: j.first + uint64(len(j.events)) - 1, Events: len(j.events), Bytes: j.bytes, Groups: slices.Sorted(maps.Keys(j.groups)),
	}, nil
}

// memoryGroup is a [Group]: a queue into which the journal puts its events.
type memoryGroup struct {
	*MemoryQueue
	j    *memoryJournal
	name string
}

// Group implements [Journal].
func (j joinedJournal) Group(name string, from Start) (Group, error) {
	if err := checkGroup(name); err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	g := j.groups[name]
	if g == nil {
		g = &memoryGroup{NewMemoryQueue(j.cfg.group()), j.memoryJournal, name}
		for at := max(j.startLocked(from), j.first); at-j.first < uint64(len(j.events)); at++ {
			g.hand(at, j.events[at-j.first])
		}
		j.groups[name] = g
	}
	return &memoryGroup{g.Join(), j.memoryJournal, name}, nil
}

// hand gives an event to the group.
func (g *memoryGroup) hand(offset uint64, k kept) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pushLocked(&memoryItem{seq: offset, id: k.id, body: k.data, at: k.at})
}

// Forget implements [Group].
func (g *memoryGroup) Forget(context.Context) error {
	g.j.mu.Lock()
	defer g.j.mu.Unlock()
	delete(g.j.groups, g.name)
	return nil
}
