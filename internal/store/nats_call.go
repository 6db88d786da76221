package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Codes of errors of JetStream's API that the library has no names for.
const (
	natsWrongSequence = 10071 // with the right one
	natsSubjectBusy   = 10164 // another message with the subject is under way
	natsNoMessage     = 10037
	natsNoStream      = 10059
	natsTooLarge      = 10054
)

// doNATS does one call, with the default timeout, once the state has been read.
func doNATS[T any](ctx context.Context, n *NATS, verb, subject string, call func(context.Context) (T, error)) (T, error) {
	var none T
	switch {
	case ctx.Err() != nil:
		return none, n.explain(ctx, verb, subject, context.Cause(ctx))
	case n.life.ctx.Err() != nil:
		return none, n.explain(ctx, verb, subject, ErrClosed)
	}
	limited, cancel := n.life.join(ctx)
	defer cancel(nil)
	if _, bounded := ctx.Deadline(); !bounded {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(limited, n.timeout)
		defer stop()
	}
	err := n.await(limited, func() bool { return n.sessions > 0 })
	if err == nil {
		var result T
		if result, err = call(limited); err == nil {
			return result, nil
		}
	}
	return none, n.explain(ctx, verb, subject, err)
}

// await waits until a condition holds, which it checks under the mutex.
func (n *NATS) await(ctx context.Context, condition func() bool) error {
	for {
		n.mu.Lock()
		ok, moved := condition(), n.moved
		n.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tellMoved wakes those who wait. The caller holds the mutex.
func (n *NATS) tellMoved() {
	close(n.moved)
	n.moved = make(chan struct{})
}

// aside runs a request on a goroutine of its own, because the library may block on a full
// socket for longer than ctx allows.
func aside[T any](ctx context.Context, n *NATS, request func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	finished, err := n.life.begin()
	if err != nil {
		return none, err
	}
	answers := make(chan answer, 1)
	go func() {
		defer finished()
		value, err := request(ctx)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// write publishes a message and, within limits, waits until this process has read it: a
// writer cannot run ahead of its own watches by more than the stream keeps.
func (n *NATS) write(ctx context.Context, m *nats.Msg) (Revision, error) {
	rev, err := n.publish(ctx, m)
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, natsImpatience)
		defer cancel()
		_ = n.await(wait, func() bool { return n.session == nil || n.applied.seq >= rev }) // it is written anyway
	}
	return rev, err
}

// publish sends a message and returns its revision once the server has stored it. While the
// stream has no leader, nobody takes the message, and it is sent again.
func (n *NATS) publish(ctx context.Context, m *nats.Msg) (Revision, error) {
	for {
		ack, err := aside(ctx, n, func(ctx context.Context) (*jetstream.PubAck, error) {
			return n.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0), jetstream.WithExpectStream(n.stream))
		})
		if err == nil {
			return Revision(ack.Sequence), nil
		}
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
			return 0, err
		}
		if sleep(ctx, natsRetry); ctx.Err() != nil {
			return 0, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// conflict reports whether the server refused a message for its condition.
func conflict(err error) bool {
	code := natsCode(err)
	return code == natsWrongSequence || code == natsSubjectBusy
}

// natsCode returns the code of an error of JetStream's API; 0 for others.
func natsCode(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// natsPause is the pause before the next attempt of a transaction that others overtook.
func natsPause(attempt int) time.Duration {
	return rand.N(min(100*time.Microsecond<<min(attempt, 10), 20*time.Millisecond))
}

// explain says what failed. ctx is the context of the call.
func (n *NATS) explain(ctx context.Context, verb, subject string, err error) error {
	if subject != "" {
		verb += " " + subject
	}
	switch {
	case isOurs(err), errors.Is(err, ErrLeaseNotFound), errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%s: %w", verb, err)
	case n.life.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", verb, ErrClosed)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", verb, context.Cause(ctx))
	case errors.Is(err, nats.ErrMaxPayload), natsCode(err) == natsTooLarge:
		return fmt.Errorf("%s: NATS %s: the value is too large: %w", verb, n.name, err)
	}
	n.mu.Lock()
	reason := n.reason
	n.mu.Unlock()
	if errors.Is(reason, nats.ErrAuthorization) || errors.Is(reason, nats.ErrAuthExpired) || errors.Is(reason, nats.ErrPermissionViolation) {
		return fmt.Errorf("%s: NATS %s: %w: %w", verb, n.name, ErrDenied, reason)
	}
	if reason != nil && !errors.Is(reason, err) {
		return fmt.Errorf("%s: %w: NATS %s: %w (%w)", verb, ErrUnavailable, n.name, err, reason)
	}
	return fmt.Errorf("%s: %w: NATS %s: %w", verb, ErrUnavailable, n.name, err)
}
