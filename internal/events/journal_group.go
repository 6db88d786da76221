package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// jetStreamGroup is a [Group]: a queue whose messages stay where they are.
type jetStreamGroup struct{ *JetStreamQueue }

// Group implements [Journal].
func (j *JetStreamJournal) Group(name string, from Start) (Group, error) {
	if err := checkGroup(name); err != nil {
		return nil, err
	}
	q := &JetStreamQueue{
		bus: j.bus, js: j.js, cfg: j.cfg.group(), log: j.log.With("group", name),
		stream: j.stream, subject: j.subject, dead: j.stream + "-dead", durable: name, keeps: true, inWork: make(map[messageKey]handling),
	}
	q.setup = func(ctx context.Context) (time.Time, error) {
		s, err := j.make(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if err := q.makeDead(ctx); err != nil {
			return time.Time{}, err
		}
		switch c, err := s.Consumer(ctx, name); {
		case err == nil:
			return s.CachedInfo().Created, q.ours(c.CachedInfo().Config) // it has its place
		case errors.Is(err, jetstream.ErrNotPullConsumer):
			return time.Time{}, fmt.Errorf("consumer %s of stream %s pushes what it has: %w", name, j.stream, ErrGroupTaken)
		case !missing(err):
			return time.Time{}, err
		}
		first := (&reading{from: from}).consumer()
		c := jetstream.ConsumerConfig{DeliverPolicy: first.DeliverPolicy, OptStartSeq: first.OptStartSeq, OptStartTime: first.OptStartTime, MaxWaiting: 4096}
		if from.New {
			c.DeliverPolicy = jetstream.DeliverNewPolicy
		}
		return s.CachedInfo().Created, q.makeConsumer(ctx, c)
	}
	return jetStreamGroup{q}, nil
}

// ours fails for a consumer that cannot serve as the group.
func (q *JetStreamQueue) ours(c jetstream.ConsumerConfig) error {
	what := ""
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		what = "acknowledges with policy " + c.AckPolicy.String()
	case c.MaxDeliver > 0:
		what = fmt.Sprintf("gives up after %d deliveries", c.MaxDeliver)
	default:
		return nil
	}
	return fmt.Errorf("consumer %s of stream %s %s: %w", q.durable, q.stream, what, ErrGroupTaken)
}

// Depth implements [Group].
func (g jetStreamGroup) Depth(ctx context.Context) (Depth, error) {
	found := make(chan Depth, 2) // f may still run after request has given up
	err := g.request(ctx, "depth of", func(ctx context.Context) error {
		c, err := g.js.Consumer(ctx, g.stream, g.durable)
		if err != nil {
			return err
		}
		dead, err := g.js.Stream(ctx, g.dead)
		if err != nil {
			return err
		}
		in := c.CachedInfo()
		found <- Depth{Pending: int(in.NumPending), InWork: in.NumAckPending, DeadLettered: int(dead.CachedInfo().State.Msgs)}
		return nil
	})
	if err != nil {
		return Depth{}, err
	}
	return <-found, nil
}

// Forget implements [Group].
func (g jetStreamGroup) Forget(ctx context.Context) error {
	return g.request(ctx, "forget a group of", func(ctx context.Context) error {
		err := g.js.DeleteConsumer(ctx, g.stream, g.durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	})
}
