package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// natsHistory is how many messages the stream keeps of a key. Whoever is behind by more
	// gets a Resync. It is the most that a bucket can have.
	natsHistory = 64
	// natsReplicas is how many servers shall have the stream, where there are as many.
	natsReplicas = 3

	natsHeartbeat = time.Second
	// natsSilence is how long a session waits for a message or heartbeat.
	natsSilence = 2500 * time.Millisecond
	natsSetup   = 5 * time.Second // for all that a session needs
	natsRequest = time.Second     // for one answer; while a leader is elected, nobody answers
	natsRetry   = 50 * time.Millisecond
	natsRetries = time.Second // the longest pause
)

// natsSession is one consumer that reads the stream.
type natsSession struct {
	reconnects uint64 // of the connection
}

// connected, disconnected and unreachable run on the library's callback goroutine, in order.
func (n *NATS) connected() {
	n.mu.Lock()
	n.reason = nil
	n.mu.Unlock()
	signal(n.online)
}

func (n *NATS) disconnected(err error) {
	if err == nil {
		err = errors.New("the connection was closed")
	}
	n.unreachable(err)
	n.mu.Lock()
	session := n.sessions
	n.mu.Unlock()
	n.endSession(session, err)
}

// unreachable notes why there is no connection.
func (n *NATS) unreachable(err error) {
	if err == nil {
		return
	}
	n.mu.Lock()
	n.reason = err
	n.mu.Unlock()
	signal(n.check)
}

// endSession ends the session of that number, if it is the last. One that has not begun yet sees by
// itself whether it can go on from what was applied: it would never begin on a slow connection, if
// all who read meanwhile ended it.
func (n *NATS) endSession(number uint64, cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.end != nil && n.sessions == number {
		n.session = nil
		n.end(cause)
	}
}

// follow reads the stream until ctx ends: one session after the other.
func (n *NATS) follow(ctx context.Context) {
	pause := natsRetry
	resume := false // where the last session ended
	for ctx.Err() == nil {
		if !n.nc.IsConnected() {
			n.waitOnline(ctx, natsRetries)
			continue
		}
		begin := time.Now()
		sctx, end := context.WithCancelCause(ctx)
		err := n.read(sctx, end, resume)
		end(nil)
		n.mu.Lock()
		n.session, n.end = nil, nil
		if n.reason == nil {
			n.reason = err
		}
		resume = n.sessions > 0 && !errors.Is(err, errNATSHistory)
		n.tellMoved()
		n.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		signal(n.check)
		n.logger.Debug("the store's stream is read anew", "nats", n.name, "err", err)
		if time.Since(begin) > natsSilence || errors.Is(err, errNATSHistory) {
			pause = natsRetry
		}
		n.waitOnline(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, natsRetries)
	}
}

// waitOnline waits for a new connection, for d or the end of ctx.
func (n *NATS) waitOnline(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.online:
	case <-ctx.Done():
	}
}

// read is one session. With resume, the first message must be the last that was applied:
// the stream then has all that came after, or the message that follows shows the gap. Else it
// begins with the last message of each subject. end ends ctx.
func (n *NATS) read(ctx context.Context, end context.CancelCauseFunc, resume bool) error {
	session := &natsSession{reconnects: n.nc.Stats().Reconnects}
	setup, cancel := context.WithTimeout(ctx, natsSetup)
	defer cancel()
	info, err := aside(setup, n, n.openStream)
	if err != nil {
		return err
	}
	n.mu.Lock()
	from := n.applied
	n.mu.Unlock()
	if resume && Revision(info.State.LastSeq) < from.seq {
		return errNATSHistory
	}
	in, pending, err := n.consume(setup, resume, from.seq)
	if err != nil {
		return err
	}
	defer func() { _ = in.Unsubscribe() }() // fails only for a connection that is gone
	s := &natsReader{n: n, session: session, end: end, in: in, from: from, last: Revision(info.State.LastSeq)}
	if !resume {
		s.snapshot, s.pending = &natsSnapshot{}, pending
	}
	cancel()
	if !resume && pending == 0 || resume && from.seq == 0 {
		s.begin()
	}
	return s.run(ctx)
}

// consume makes a consumer and returns its messages, and how many there are at first.
func (n *NATS) consume(ctx context.Context, resume bool, from Revision) (in *nats.Subscription, pending uint64, err error) {
	in, err = n.nc.SubscribeSync(n.nc.NewInbox())
	if err != nil {
		return nil, 0, err
	}
	_ = in.SetPendingLimits(-1, -1) // flow control bounds it
	cfg := jetstream.ConsumerConfig{
		DeliverSubject: in.Subject, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: n.prefix + ">",
		AckPolicy: jetstream.AckNonePolicy, FlowControl: true, IdleHeartbeat: natsHeartbeat,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 2 * natsSetup,
	}
	if resume {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, uint64(max(from, 1))
	}
	pending, err = aside(ctx, n, func(ctx context.Context) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, natsRequest)
		defer cancel()
		c, err := n.js.CreatePushConsumer(ctx, n.stream, cfg)
		if err != nil {
			return 0, err
		}
		return c.CachedInfo().NumPending, nil
	})
	if err != nil {
		_ = in.Unsubscribe()
	}
	return in, pending, err
}

// natsReader reads the messages of a consumer.
type natsReader struct {
	n        *NATS
	session  *natsSession
	end      context.CancelCauseFunc
	in       *nats.Subscription
	from     natsPlace     // the last message that was applied before
	last     Revision      // of the stream, when the session began
	snapshot *natsSnapshot // nil once the session follows the stream
	pending  uint64        // messages of the snapshot that are missing
	consumed uint64        // messages
	begun    bool
}

// run reads until something is missing, or ctx ends.
func (s *natsReader) run(ctx context.Context) error {
	for {
		wait, cancel := context.WithTimeout(ctx, natsSilence)
		m, err := s.in.NextMsgWithContext(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("the consumer is silent for %s", natsSilence)
		case err != nil:
			return err
		}
		if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
			err = s.control(m, status)
		} else {
			err = s.message(m)
		}
		if err != nil {
			return err
		}
	}
}

// control handles heartbeats, and what the server asks and says about the consumer.
func (s *natsReader) control(m *nats.Msg, status string) error {
	if status != "100" {
		return fmt.Errorf("the consumer has ended: %s %s", status, m.Header.Get("Description"))
	}
	if m.Reply != "" { // flow control
		return m.Respond(nil)
	}
	if stalled := m.Header.Get("Nats-Consumer-Stalled"); stalled != "" {
		if err := s.n.nc.Publish(stalled, nil); err != nil {
			return err
		}
	}
	if last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && last != s.consumed {
		return fmt.Errorf("%d messages of the consumer are missing", last-s.consumed)
	}
	if !s.begun { // a consumer that is idle has sent all
		if s.snapshot == nil {
			return errNATSHistory // without the message that it began with
		}
		s.begin()
	}
	return nil
}

// message applies one message.
func (s *natsReader) message(m *nats.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	s.consumed++
	if meta.Sequence.Consumer != s.consumed {
		return fmt.Errorf("message %d of the consumer is missing", s.consumed)
	}
	c := decodeNATS(s.n.prefix, m, Revision(meta.Sequence.Stream), meta.Timestamp)
	switch {
	case s.snapshot != nil && !s.begun:
		s.snapshot.add(c)
		if s.pending = max(s.pending, 1) - 1; s.pending == 0 || meta.NumPending == 0 {
			s.begin()
		}
		return nil
	case !s.begun:
		if c.seq != s.from.seq || !c.at.Equal(s.from.at) {
			return errNATSHistory
		}
		s.begin()
		return nil
	}
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	switch {
	case c.seq <= s.n.applied.seq: // it was read from the leader
		return nil
	case c.seq != s.n.applied.seq+1:
		return errNATSHistory
	}
	s.n.apply(c)
	s.n.tellMoved()
	return nil
}

// begin says that the state is one of the stream from now on.
func (s *natsReader) begin() {
	n := s.n
	n.mu.Lock()
	defer n.mu.Unlock()
	s.begun = true
	if s.snapshot != nil {
		n.adopt(s.snapshot, s.last)
		s.snapshot = nil
	}
	n.session, n.end, n.verified, n.reason = s.session, s.end, s.session.reconnects+1, nil
	n.sessions++
	n.tellMoved()
	signal(n.check)
}
