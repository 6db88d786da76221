package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxFinished bounds the messages that wait to leave the server. The processes of a queue
// together rarely hold as many in work.
const maxFinished = 1024

// errTooManyFinished means that too many messages wait to leave the server.
var errTooManyFinished = fmt.Errorf("%d finished messages wait for the server, none can be remembered any more", maxFinished)

// departure is a message that must leave the server when that is reached again, because its
// work is done or unwanted. The server would hand it out once more otherwise.
type departure struct {
	id    string
	since time.Time
	leave func(context.Context) error // tries once
	gone  chan struct{}               // closed when it has left
}

// depart remembers a message until leave has succeeded, or until it is too old for the
// server to have it.
func (q *JetStreamQueue) depart(id string, leave func(context.Context) error) (*departure, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.leaving) >= maxFinished {
		return nil, errTooManyFinished
	}
	d := &departure{id: id, since: time.Now(), leave: leave, gone: make(chan struct{})}
	if len(q.leaving) == 0 {
		if err := q.bus.spawn(q.escort); err != nil {
			return nil, err
		}
	}
	q.leaving = append(q.leaving, d)
	return d, nil
}

// escort makes messages leave, the oldest first, until none is left or the bus is closed.
// It survives disconnects.
func (q *JetStreamQueue) escort() {
	for pause := firstRetry; ; {
		d := q.firstLeaving()
		if !q.bus.waitOnline(nil) {
			q.abandon()
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		err := d.leave(ctx)
		cancel()
		over := err == nil || time.Since(d.since) > q.cfg.MaxAge
		if over {
			close(d.gone)
			pause = firstRetry
		} else {
			q.log.Info("a finished message is still in the queue", "id", d.id, "err", err, "retry_in", pause)
		}
		if !q.left(over) {
			return
		}
		if over {
			continue
		}
		select {
		case <-time.After(pause):
		case <-q.bus.closing:
		}
		pause = min(2*pause, longestRetry)
	}
}

func (q *JetStreamQueue) firstLeaving() *departure {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leaving[0]
}

// left takes the first message off the list, or puts it behind the others. It returns false
// when none is left.
func (q *JetStreamQueue) left(over bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.leaving[0]
	q.leaving = q.leaving[1:]
	if !over {
		q.leaving = append(q.leaving, first)
	}
	return len(q.leaving) > 0
}

// abandon gives up, because the bus was closed.
func (q *JetStreamQueue) abandon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log.Warn("closed without a connection: finished messages may be worked on again", "messages", len(q.leaving), "first", q.leaving[0].id)
	q.leaving = nil
}

// remove deletes a message by its number, unless it is gone. Another message has the number if
// the stream was made anew, or restored from a backup, so it must have the id, and the
// stream must be the one that was made at born.
func (q *JetStreamQueue) remove(ctx context.Context, id string, seq uint64, born time.Time) error {
	switch err := q.still(ctx, born); {
	case errors.Is(err, errStreamsReplaced):
		return nil
	case err != nil:
		return err
	}
	s, err := q.theStream(ctx)
	if err != nil {
		return err
	}
	there, err := s.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return err
	case there.Header.Get(nats.MsgIdHdr) != id:
		return nil
	}
	err = s.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return nil // it has left meanwhile
	}
	return err
}

// theStream returns the stream, which is asked for once.
func (q *JetStreamQueue) theStream(ctx context.Context) (jetstream.Stream, error) {
	if s := q.work.Load(); s != nil {
		return *s, nil
	}
	s, err := q.js.Stream(ctx, q.stream)
	if err != nil {
		return nil, err
	}
	q.work.Store(&s)
	return s, nil
}
