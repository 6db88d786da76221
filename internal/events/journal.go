package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrJournalTaken is returned when the journal of another subject has the same name. Names
// do not tell dots, dashes and underscores apart, nor capitals from small letters.
var ErrJournalTaken = errors.New("another journal has its name")

// ErrGroupTaken is returned when a consumer of another kind has the name of a group: one that
// another program made, which does not hand each event to one until it is acknowledged.
var ErrGroupTaken = errors.New("another consumer has its name")

// Journal keeps the events of one subject, for those who come later or must not miss any. It
// numbers them by offsets, from 1 on. What is appended also reaches the subscriptions of its
// subject, and what is published there is kept too, if the server is reached. All methods
// are safe for concurrent use.
type Journal interface {
	// Append stores an event and returns its offset when the server has stored it. The id
	// makes retries safe: within [JournalConfig.DedupWindow] a second event with the same id
	// is not stored, and the offset is that of the first; an empty id is none. It fails with
	// ErrUnavailable, within two seconds; then the event may still have been stored.
	Append(ctx context.Context, id string, v any) (offset uint64, err error)

	// Read calls h, from this goroutine, for each event from a start on, in order, until ctx
	// ends, h fails or the bus is closed, and returns the cause. While the server is
	// unreachable it waits, and then goes on with the next event.
	Read(ctx context.Context, from Start, h func(Record) error) error

	// Group is a set of consumers that share the events: each event is handed to one of them,
	// at least once, until it is acknowledged. Their place is kept by the server. from counts
	// only for the first who asks for the group.
	Group(name string, from Start) (Group, error)

	// State says what the journal holds.
	State(ctx context.Context) (JournalState, error)
}

// Group is one consumer group of a journal.
type Group interface {
	// Consume is as that of a [WorkQueue]. The body of a delivery is an event, which
	// [DecodeRecord] decodes, and its ID that of Append, or the offset. Events that are given
	// up become dead letters, as in a work queue. It ends with ErrGroupTaken or
	// ErrJournalTaken when something else has a name that it needs, now or later.
	Consume(ctx context.Context, concurrency int, h func(ctx context.Context, d *Delivery)) error
	// Depth counts the events that the group has not acknowledged. Events that the journal
	// no longer keeps do not count.
	Depth(ctx context.Context) (Depth, error)
	// Forget removes the group with its place.
	Forget(ctx context.Context) error
}

// Start is where reading begins. The zero Start is the oldest event.
type Start struct {
	Offset uint64    // the first event at or after it, if not 0
	Since  time.Time // the first event stored at or after it, by the server's clock, if not zero
	New    bool      // only events that are stored later
}

// Record is one event of a journal.
type Record struct {
	Event
	Offset   uint64
	StoredAt time.Time // server's clock
	// Lost counts the events right before this one that the reader should have got and the
	// journal no longer keeps. Where the server has lost the whole journal, offsets begin
	// anew, and it counts those of the new one.
	Lost uint64
}

// JournalState is what a journal holds.
type JournalState struct {
	First, Last uint64 // offsets; First is Last + 1 if it holds none
	Events      int
	Bytes       int64
	Groups      []string // sorted
}

// JournalConfig configures a journal. Zero fields mean the defaults. All users of a journal
// must use the same one; the last one to connect wins.
type JournalConfig struct {
	MaxAge      time.Duration // default 1 h
	MaxEvents   int           // default 1,000,000
	MaxBytes    int64         // default 256 MiB
	DedupWindow time.Duration // for ids; default 2 min, at most MaxAge
	AckWait     time.Duration // as in [QueueConfig]; default 5 s
	MaxDeliver  int           // as in [QueueConfig]; default 5
}

func (c JournalConfig) withDefaults() JournalConfig {
	if c.MaxAge <= 0 {
		c.MaxAge = time.Hour
	}
	if c.MaxEvents <= 0 {
		c.MaxEvents = 1_000_000
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 256 << 20
	}
	if c.DedupWindow <= 0 {
		c.DedupWindow = 2 * time.Minute
	}
	c.DedupWindow = min(c.DedupWindow, c.MaxAge)
	return c
}

// group returns how the groups of the journal hand out events.
func (c JournalConfig) group() QueueConfig {
	return QueueConfig{MaxMessages: c.MaxEvents, MaxAge: c.MaxAge, DedupWindow: c.DedupWindow, AckWait: c.AckWait, MaxDeliver: c.MaxDeliver}.withDefaults()
}

// JournalName returns the name of the stream that keeps the events of a subject.
func JournalName(subject string) string {
	return slug(strings.NewReplacer("_", "-", ".", "-").Replace(subject))
}

// checkGroup accepts names of groups.
func checkGroup(name string) error {
	if name == "" || len(name) > 64 || slug(name) != name {
		return fmt.Errorf("group %q: a name has lower-case letters, digits, - and _, 64 at most", name)
	}
	return nil
}

// DecodeRecord decodes what a group hands out.
func DecodeRecord(subject string, d *Delivery) (Record, error) {
	e, err := decodeEnvelope(subject, d.Body)
	return Record{Event: e, Offset: d.Offset, StoredAt: d.StoredAt}, err
}
