package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/protocol"
)

const (
	// appendTimeout limits Append, and each request of the others.
	appendTimeout = 2 * time.Second
	// readWait is how long Read waits for an event before it looks whether the journal is
	// still the same.
	readWait = 5 * time.Second
)

// JetStreamJournal is the [Journal] in NATS JetStream. Make one with [NATS.Journal].
type JetStreamJournal struct {
	bus     *NATS
	js      jetstream.JetStream
	cfg     JournalConfig
	log     *slog.Logger
	subject string
	stream  string

	mu   sync.Mutex    // keeps appended events in the order of their numbers
	made atomic.Uint64 // reconnects of the connection on which the stream was last there, plus one
}

var _ Journal = (*JetStreamJournal)(nil)

// Journal implements [Bus].
func (n *NATS) Journal(subject string, cfg JournalConfig) (Journal, error) {
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	js, err := jetstream.New(n.nc)
	if err != nil {
		return nil, fmt.Errorf("journal of %s: %w", subject, err)
	}
	stream := JournalName(subject)
	return &JetStreamJournal{bus: n, js: js, cfg: cfg.withDefaults(), log: n.log.With("journal", stream), subject: subject, stream: stream}, nil
}

// make makes the stream if it does not exist, and returns it.
func (j *JetStreamJournal) make(ctx context.Context) (jetstream.Stream, error) {
	cfg := jetstream.StreamConfig{
		Name:        j.stream,
		Description: "events on " + j.subject,
		Subjects:    []string{j.subject},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		MaxMsgs:     int64(j.cfg.MaxEvents),
		MaxBytes:    j.cfg.MaxBytes,
		MaxAge:      j.cfg.MaxAge,
		Duplicates:  j.cfg.DedupWindow,
		Storage:     jetstream.FileStorage,
		AllowDirect: true,
	}
	s, err := j.js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // with other limits, or for another subject
		var there jetstream.Stream
		if there, err = j.js.Stream(ctx, j.stream); err == nil {
			if kept := there.CachedInfo().Config.Subjects; !slices.Equal(kept, cfg.Subjects) {
				return nil, fmt.Errorf("stream %s keeps %s, not %s: %w", j.stream, strings.Join(kept, ", "), j.subject, ErrJournalTaken)
			}
			s, err = j.js.UpdateStream(ctx, cfg)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make stream %s: %w", j.stream, err)
	}
	return s, nil
}

// Append implements [Journal].
func (j *JetStreamJournal) Append(ctx context.Context, id string, v any) (uint64, error) {
	payload, err := protocol.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("append to %s: %w", j.stream, err)
	}
	var offset uint64
	err = j.request(ctx, "append to", func(ctx context.Context) error {
		ack, err := j.publish(id, payload)
		if err != nil {
			return err
		}
		select {
		case got := <-ack.Ok():
			offset = got.Sequence
			return nil
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return offset, err
}

// publish sends an event. Those of one subject are sent in the order of their numbers.
func (j *JetStreamJournal) publish(id string, payload []byte) (jetstream.PubAckFuture, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bus.mu.Lock()
	publisher, seq := j.bus.numbers.take(j.subject)
	j.bus.mu.Unlock()
	m := nats.NewMsg(j.subject)
	m.Data = encodeEnvelope(publisher, seq, time.Now(), topicOf(j.subject), payload)
	opts := []jetstream.PublishOpt{jetstream.WithExpectStream(j.stream), jetstream.WithRetryAttempts(0)}
	if id != "" {
		opts = append(opts, jetstream.WithMsgID(id))
	}
	return j.js.PublishMsgAsync(m, opts...)
}

// request runs f, a second time after making the stream if that is missing. It never waits
// longer than ctx or its own limit.
func (j *JetStreamJournal) request(ctx context.Context, what string, f func(context.Context) error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", what, j.stream, context.Cause(ctx))
	case !j.bus.Connected():
		return fmt.Errorf("%s %s: %w", what, j.stream, ErrUnavailable)
	}
	own, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	// An event that no stream takes would reach subscriptions all the same, and once more when
	// it is sent again.
	now, err := j.bus.reconnects()+1, error(nil)
	if j.made.Load() != now {
		if _, err = j.make(own); err == nil {
			j.made.Store(now)
		}
	}
	if err == nil {
		err = f(own)
	}
	if missing(err) {
		j.made.Store(0)
		if _, err = j.make(own); err == nil {
			err = f(own)
		}
	}
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", what, j.stream, context.Cause(ctx))
	case errors.As(err, &api) && api.ErrorCode == codeMaxPayload, errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%s %s: %w", what, j.stream, ErrTooLarge)
	case taken(err):
		return fmt.Errorf("%s %s: %w", what, j.stream, err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%s %s: %w", what, j.stream, ErrClosed)
	}
	return fmt.Errorf("%s %s: %w: %w", what, j.stream, ErrUnavailable, err)
}

// reading is a reader's place in a journal.
type reading struct {
	next uint64    // offset of the next event; 0 before the first
	from Start     // where it began
	born time.Time // of the stream; zero before the first
}

// Read implements [Journal].
func (j *JetStreamJournal) Read(ctx context.Context, from Start, h func(Record) error) error {
	at := &reading{from: from}
	pause := firstRetry
	for j.bus.waitOnline(ctx.Done()) {
		began := time.Now()
		err := j.follow(ctx, at, h)
		var over *overError
		switch {
		case errors.As(err, &over):
			return over.err
		case taken(err):
			return fmt.Errorf("read %s: %w", j.stream, err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if time.Since(began) > longestRetry {
			pause = firstRetry
		}
		j.log.Info("reading interrupted", "reason", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestRetry)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("read %s: %w", j.stream, ErrClosed)
}

// overError is an error of a reader's own function, which ends the reading.
type overError struct{ err error }

func (e *overError) Error() string { return e.err.Error() }

// follow reads until something is wrong.
func (j *JetStreamJournal) follow(ctx context.Context, at *reading, h func(Record) error) error {
	setup, cancel := context.WithTimeout(ctx, setupTimeout)
	s, err := j.make(setup)
	cancel()
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	if !at.born.IsZero() && !at.born.Equal(info.Created) {
		at.next = 1 // the server has lost the journal: all of the new one is unread
	}
	at.born = info.Created
	if at.next == 0 && at.from.New {
		at.next = info.State.LastSeq + 1
	}
	c, err := s.OrderedConsumer(ctx, at.consumer())
	if err != nil {
		return err
	}
	msgs, err := c.Messages()
	if err != nil {
		return err
	}
	defer msgs.Stop()
	for {
		wait, cancel := context.WithTimeout(ctx, readWait)
		m, err := msgs.Next(jetstream.NextContext(wait))
		quiet := wait.Err() != nil
		cancel()
		switch {
		case err != nil && quiet && ctx.Err() == nil:
			if err := j.same(ctx, at); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if err := j.deliver(m, at, h); err != nil {
			return err
		}
	}
}

// same fails if the stream is another one than that which is read.
func (j *JetStreamJournal) same(ctx context.Context, at *reading) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	s, err := j.js.Stream(ctx, j.stream)
	if err == nil && !s.CachedInfo().Created.Equal(at.born) {
		err = errStreamsReplaced
	}
	return err
}

func (at *reading) consumer() jetstream.OrderedConsumerConfig {
	c := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	switch {
	case at.next > 0:
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, at.next
	case at.from.Offset > 0:
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, at.from.Offset
	case !at.from.Since.IsZero():
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &at.from.Since
	}
	return c
}

func (j *JetStreamJournal) deliver(m jetstream.Msg, at *reading, h func(Record) error) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	offset := meta.Sequence.Stream
	if at.next > 0 && offset < at.next {
		return nil // again
	}
	r := Record{Offset: offset, StoredAt: meta.Timestamp, Lost: at.lost(offset)}
	at.next = offset + 1
	if r.Event, err = decodeEnvelope(m.Subject(), m.Data()); err != nil {
		j.bus.malformed.Add(1)
		return nil
	}
	if err := h(r); err != nil {
		return &overError{err}
	}
	return nil
}

// lost counts the events that are missing before the one at an offset.
func (at *reading) lost(offset uint64) uint64 {
	switch {
	case at.next > 0:
		return offset - at.next
	case at.from.Offset > 0:
		return offset - min(at.from.Offset, offset)
	}
	return 0
}

// State implements [Journal].
func (j *JetStreamJournal) State(ctx context.Context) (JournalState, error) {
	var st JournalState
	err := j.request(ctx, "state of", func(ctx context.Context) error {
		s, err := j.js.Stream(ctx, j.stream)
		if err != nil {
			return err
		}
		in := s.CachedInfo().State
		st = JournalState{First: in.FirstSeq, Last: in.LastSeq, Events: int(in.Msgs), Bytes: int64(in.Bytes)}
		if in.Msgs == 0 {
			st.First = in.LastSeq + 1
		}
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			if c.Config.Durable != "" {
				st.Groups = append(st.Groups, c.Config.Durable)
			}
		}
		slices.Sort(st.Groups)
		return list.Err()
	})
	return st, err
}
