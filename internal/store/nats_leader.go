package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsImpatience is how long an answer may take, and how long what was written may take to
// come by the session, before the stream's leader is asked for it. While a leader is elected,
// nobody answers.
const natsImpatience = 500 * time.Millisecond

// errNATSHistory ends a session when the stream is another one than that which was read.
var errNATSHistory = errors.New("the stream has lost its messages, or was replaced")

// leaderMessage is a message of the stream, as its leader has it.
type leaderMessage struct {
	natsChange
	reconnects uint64 // of the connection over which it was asked
}

// natsGet is a request for one message: the last of a subject, or that of a number, or with
// Next the first from there on.
type natsGet struct {
	Last string   `json:"last_by_subj,omitempty"`
	Seq  Revision `json:"seq,omitempty"`
	Next string   `json:"next_by_subj,omitempty"`
}

// askLeader asks the stream's leader for a message; there may be none.
func (n *NATS) askLeader(ctx context.Context, get natsGet) (m leaderMessage, err error) {
	request, err := json.Marshal(get)
	if err != nil {
		return m, err
	}
	return aside(ctx, n, func(ctx context.Context) (m leaderMessage, err error) {
		reply, err := n.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+n.stream, request)
		if err != nil {
			return m, err
		}
		m.reconnects = n.nc.Stats().Reconnects
		var answer struct {
			Error   *jetstream.APIError `json:"error"`
			Message struct {
				Subject string    `json:"subject"`
				Seq     Revision  `json:"seq"`
				Header  []byte    `json:"hdrs"`
				Data    []byte    `json:"data"`
				Time    time.Time `json:"time"`
			} `json:"message"`
		}
		if err := json.Unmarshal(reply.Data, &answer); err != nil {
			return m, err
		}
		if answer.Error != nil {
			if answer.Error.ErrorCode == natsNoMessage {
				return m, nil
			}
			return m, answer.Error
		}
		raw := answer.Message
		msg := &nats.Msg{Subject: raw.Subject, Data: raw.Data}
		if len(raw.Header) > 0 {
			if msg.Header, err = nats.DecodeHeadersMsg(raw.Header); err != nil {
				return m, err
			}
		}
		m.natsChange = decodeNATS(n.prefix, msg, raw.Seq, raw.Time)
		return m, nil
	})
}

// catchUp waits until the state has all that was written before. What does not come by the
// session, it reads from the leader.
func (n *NATS) catchUp(ctx context.Context) error {
	var trouble error
	for again := false; ; again = true {
		if again {
			if sleep(ctx, natsRetry); ctx.Err() != nil {
				return errors.Join(context.Cause(ctx), trouble)
			}
		}
		n.mu.Lock()
		before, session := n.applied.seq, n.sessions
		n.mu.Unlock()
		asking, cancel := context.WithTimeout(ctx, natsImpatience)
		last, err := n.askLeader(asking, natsGet{Last: ">"})
		unanswered := asking.Err() != nil
		cancel()
		switch {
		case natsCode(err) == natsNoStream:
			n.endSession(session, errNATSHistory)
			return err
		case err != nil && (unanswered || natsCode(err) != 0):
			trouble = err
			continue
		case err != nil:
			return err
		}
		if last.seq < before {
			if again { // else a new leader may have yet to apply what it has
				n.endSession(session, errNATSHistory)
			}
			trouble = errNATSHistory
			continue
		}
		current := func() bool { return n.applied.seq >= last.seq && n.verified == last.reconnects+1 }
		wait, cancel := context.WithTimeout(ctx, natsImpatience)
		err = n.await(wait, func() bool { return current() || n.session == nil })
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && n.holdsNow(current) {
			return nil
		}
		if trouble = n.pull(ctx, last); trouble == nil {
			return nil
		}
	}
}

func (n *NATS) holdsNow(condition func() bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return condition()
}

// pull reads messages from the leader up to last. It first compares the one that was applied
// last, unless that was done on this connection.
func (n *NATS) pull(ctx context.Context, last leaderMessage) error {
	select {
	case n.pulling <- struct{}{}:
		defer func() { <-n.pulling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		n.mu.Lock()
		if n.applied.seq == 0 { // nothing to compare
			n.verified = last.reconnects + 1
		}
		from, session, verified := n.applied, n.sessions, n.verified == last.reconnects+1
		n.mu.Unlock()
		if verified && from.seq >= last.seq {
			return nil
		}
		get := natsGet{Seq: from.seq + 1, Next: ">"}
		if !verified {
			get = natsGet{Seq: from.seq}
		}
		asking, cancel := context.WithTimeout(ctx, natsImpatience)
		m, err := n.askLeader(asking, get)
		cancel()
		switch {
		case err != nil:
			return err
		case m.reconnects != last.reconnects:
			return errors.New("the connection was lost")
		}
		n.mu.Lock()
		switch {
		case n.sessions != session || n.applied != from: // it came by a session
		case !verified && (m.seq != from.seq || !m.at.Equal(from.at)), verified && m.seq != from.seq+1:
			err = fmt.Errorf("message %d: %w", from.seq, errNATSHistory)
		case !verified:
			n.verified = last.reconnects + 1
		default:
			n.apply(m.natsChange)
			n.tellMoved()
		}
		n.mu.Unlock()
		if err != nil {
			n.endSession(session, err)
			return err
		}
	}
}
