package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	ackTry        = time.Second // one try of an acknowledgement
	ackLimit      = 10 * time.Second
	settleTimeout = 2 * time.Second // for Term and Nak
)

// Consume implements [WorkQueue].
func (q *JetStreamQueue) Consume(ctx context.Context, concurrency int, h func(context.Context, *Delivery)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var slots sync.WaitGroup
	for range concurrency - 1 {
		slots.Go(func() { q.slot(ctx, h, end) })
	}
	q.slot(ctx, h, end)
	slots.Wait()
	if ctx.Err() == nil {
		return fmt.Errorf("consume %s: %w", q.stream, ErrClosed)
	}
	return context.Cause(ctx)
}

// taken reports whether err says that something else has a name that is needed: waiting does
// not help.
func taken(err error) bool {
	return errors.Is(err, ErrJournalTaken) || errors.Is(err, ErrGroupTaken)
}

// slot handles one message after the other until ctx ends, or it ends it. Each slot has its
// own request at the server, so that no message waits behind a busy handler.
func (q *JetStreamQueue) slot(ctx context.Context, h func(context.Context, *Delivery), end context.CancelCauseFunc) {
	pause := firstRetry
	for q.bus.waitOnline(ctx.Done()) {
		start := time.Now()
		err := q.pull(ctx, h)
		if ctx.Err() != nil {
			return
		}
		if taken(err) {
			end(fmt.Errorf("consume %s: %w", q.stream, err))
			return
		}
		if missing(err) || errors.Is(err, errSilent) {
			q.ready.Store(nil) // check again whether the consumer exists
		}
		if time.Since(start) > longestRetry {
			pause = firstRetry
		}
		q.log.Info("queue consumer interrupted", "reason", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestRetry)
	}
}

// pull handles messages until an error.
func (q *JetStreamQueue) pull(ctx context.Context, h func(context.Context, *Delivery)) error {
	if err := q.ensure(ctx); err != nil {
		return err
	}
	there := q.ready.Load()
	if there == nil {
		return errStreamsReplaced
	}
	p, err := newPuller(q.bus, q.stream, q.durable)
	if err != nil {
		return err
	}
	defer p.close()
	for {
		msg, err := p.next(ctx)
		if err != nil {
			return err
		}
		if err := q.handle(ctx, there, msg, h); err != nil {
			q.log.Warn("queue message not handled", "err", err)
		}
	}
}

// handle works on a message of the streams that are there.
func (q *JetStreamQueue) handle(ctx context.Context, there *streams, msg *nats.Msg, h func(context.Context, *Delivery)) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	m := &jetMessage{
		q:       q,
		of:      there,
		msg:     msg,
		key:     messageKey{meta.Sequence.Stream, meta.Timestamp.UnixNano()},
		id:      msg.Header.Get(nats.MsgIdHdr),
		attempt: int(meta.NumDelivered),
	}
	if m.id == "" { // an event of a journal
		m.id = strconv.FormatUint(meta.Sequence.Stream, 10)
	}
	// After an outage, the server may deliver again a message that a handler here works
	// on or has just finished.
	switch q.begin(m.key) {
	case beingHandled:
		return m.inProgress() // the handler goes on; its acknowledgement counts
	case justDone:
		return m.short("acknowledge", func(ctx context.Context) error { return m.respond(ctx, "+ACK") })
	}
	defer q.end(m.key)
	if m.attempt > q.cfg.MaxDeliver {
		return m.term(fmt.Sprintf("not acknowledged in %d attempts", q.cfg.MaxDeliver))
	}
	d := &Delivery{ID: m.id, Body: msg.Data, Attempt: m.attempt, Last: m.attempt >= q.cfg.MaxDeliver, Offset: meta.Sequence.Stream, StoredAt: meta.Timestamp, op: m}
	d.work(ctx, q.cfg.progressEvery(), h, q.log)
	return nil
}

// messageKey identifies a message even after its stream was deleted and made again.
type messageKey struct {
	seq    uint64
	stored int64 // when, Unix nanoseconds
}

// handling is the state of a message in this process.
type handling int

const (
	unknown handling = iota
	beingHandled
	justDone
)

// maxDone is the number of finished messages to remember.
const maxDone = 1024

// begin marks a message as in work, unless it is in work or finished already.
func (q *JetStreamQueue) begin(k messageKey) handling {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.inWork[k]
	if was == unknown {
		q.inWork[k] = beingHandled
	}
	return was
}

// end removes the mark of a message in work, unless it is remembered as done.
func (q *JetStreamQueue) end(k messageKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inWork[k] == beingHandled {
		delete(q.inWork, k)
	}
}

func (q *JetStreamQueue) acknowledged(k messageKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inWork[k] = justDone
	q.done = append(q.done, k)
	if len(q.done) > maxDone {
		delete(q.inWork, q.done[0])
		q.done = q.done[1:]
	}
}

// jetMessage is a message in work.
type jetMessage struct {
	q       *JetStreamQueue
	of      *streams
	msg     *nats.Msg
	key     messageKey
	id      string
	attempt int

	// finished is set when an acknowledgement has failed: the message is not given back any
	// more. leaving is then its place among those that must leave, if there was room.
	finished bool
	leaving  *departure
}

var _ deliveryOps = (*jetMessage)(nil)

// ack waits for the server's confirmation. A message that cannot be acknowledged now is
// remembered, and leaves the queue when the server is reached again: its consumer's memory of
// deliveries, which an acknowledgement needs, may be gone by then, and the time for it over.
func (m *jetMessage) ack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ackLimit)
	defer cancel()
	if m.leaving == nil {
		try, cancelTry := context.WithTimeout(ctx, ackTry)
		err := m.q.bus.call(try, func() error { return m.respond(try, "+ACK") })
		cancelTry()
		m.q.acknowledged(m.key)
		if err == nil || errors.Is(err, errStreamsReplaced) { // the message has gone with its stream
			return nil
		}
		m.finished = true
		if m.leaving, err = m.q.depart(m.id, m.leave); err != nil {
			return fmt.Errorf("acknowledge %s: %w: %w", m.id, ErrUnavailable, err)
		}
	}
	select {
	case <-m.leaving.gone:
		return nil
	case <-m.q.bus.gone:
		return fmt.Errorf("acknowledge %s: %w: %w", m.id, ErrUnavailable, ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("acknowledge %s: %w: it leaves the queue when the server is back: %w", m.id, ErrUnavailable, context.Cause(ctx))
	}
}

// leave takes a message whose work is done out of the queue. Those of a journal stay in
// their stream: there the group's place goes on.
func (m *jetMessage) leave(ctx context.Context) error {
	if !m.q.keeps {
		return m.q.remove(ctx, m.msg.Header.Get(nats.MsgIdHdr), m.key.seq, m.of.born)
	}
	err := m.respond(ctx, "+ACK")
	if errors.Is(err, errStreamsReplaced) {
		return nil
	}
	return err
}

// still fails if the stream is another one than that which was made at born. The server
// knows a message by its number alone, which another one has if the stream was made again.
func (q *JetStreamQueue) still(ctx context.Context, born time.Time) error {
	if err := q.ensure(ctx); err != nil {
		return err
	}
	if there := q.ready.Load(); there == nil || !there.born.Equal(born) {
		return errStreamsReplaced
	}
	return nil
}

// respond sends the decision about the message and waits for the server's confirmation.
func (m *jetMessage) respond(ctx context.Context, decision string) error {
	if err := m.q.still(ctx, m.of.born); err != nil {
		return err
	}
	_, err := m.q.bus.nc.RequestWithContext(ctx, m.msg.Reply, []byte(decision))
	return err
}

func (m *jetMessage) nak(delay time.Duration) error {
	if m.finished {
		return nil
	}
	if m.attempt >= m.q.cfg.MaxDeliver {
		return m.term(fmt.Sprintf("given back in attempt %d of %d", m.attempt, m.q.cfg.MaxDeliver))
	}
	return m.short("give back", func(ctx context.Context) error {
		if err := m.q.still(ctx, m.of.born); err != nil {
			return err
		}
		return m.msg.Respond(fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds()))
	})
}

// term stores the dead letter before it deletes the message. An interruption between the
// two can repeat the dead letter, but its id makes the server ignore the second.
func (m *jetMessage) term(reason string) error {
	if m.finished {
		return nil
	}
	return m.short("dead-letter", func(ctx context.Context) error {
		letter := nats.NewMsg(m.q.dead + ".queue")
		letter.Data = m.msg.Data
		letter.Header.Set(headerID, m.id)
		letter.Header.Set(headerReason, reason)
		letter.Header.Set(headerAttempts, strconv.Itoa(m.attempt))
		id := m.q.stream + "-" + strconv.FormatUint(m.key.seq, 10)
		if _, err := m.q.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id)); err != nil {
			return err
		}
		m.q.log.Warn("message dead-lettered", "id", m.id, "reason", reason, "attempt", m.attempt)
		return m.respond(ctx, "+ACK")
	})
}

func (m *jetMessage) inProgress() error {
	return m.short("progress report for", func(context.Context) error { return m.msg.Respond([]byte("+WPI")) })
}

// short runs one request or publication with a timeout of its own.
func (m *jetMessage) short(what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := m.q.bus.call(ctx, func() error { return f(ctx) }); err != nil {
		return fmt.Errorf("%s %s: %w: %w", what, m.id, ErrUnavailable, err)
	}
	return nil
}
