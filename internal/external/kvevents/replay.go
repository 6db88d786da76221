package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/dynctl/dynctl/internal/external/kvevents/zmtp"
)

var (
	errNoReplay    = errors.New("there is no replay, or it was used a moment ago")
	errUnreachable = errors.New("the replay cannot be reached")
	errRestarted   = errors.New("the server has begun anew")
)

// theEnd is the sequence number behind the last replayed message.
const theEnd = math.MaxUint64

// begin brings the follower up to date at the beginning of a connection.
func (s *session) begin(ctx context.Context) error {
	known, next := s.expects()
	if s.replay == "" {
		return nil
	}
	if !known || next == 0 {
		s.learn(ctx)
		return ctx.Err()
	}
	switch err := s.repeat(ctx, next); {
	case err == nil, errors.Is(err, errUnreachable): // live messages will tell
	case errors.Is(err, errRestarted):
		s.restarted(ctx)
	default:
		s.giveUp(func(n *Figures) { n.Gaps++ })
		s.learn(ctx)
	}
	return ctx.Err()
}

// learn asks for all messages that the server has kept, for a publisher of which nothing is
// known.
func (s *session) learn(ctx context.Context) {
	if s.replay == "" {
		return
	}
	if err := s.ask(ctx, 0, false); err != nil && ctx.Err() == nil {
		s.mu.Lock()
		s.complain("earlier KV events of a server cannot be had", slog.Int("rank", s.src.number), slog.Any("error", err))
		s.forget(s.src)
		s.mu.Unlock()
		return
	}
	_, s.replayed = s.expects()
}

// repeat asks for the messages from the last known one on, which must be the same again. All
// before seq must come.
func (s *session) repeat(ctx context.Context, seq uint64) error {
	_, next := s.expects()
	if next == 0 {
		return errRestarted // no message before the first could be compared
	}
	if err := s.ask(ctx, next-1, true); err != nil {
		return err
	}
	if _, next = s.expects(); next < seq {
		return fmt.Errorf("the replay ends at %d, before %d", next, seq)
	}
	s.replayed = next
	return nil
}

// ask has messages replayed from a sequence number on and takes them. The first one is only
// compared if it is known.
func (s *session) ask(ctx context.Context, from uint64, known bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.times.replay)
	defer cancel()
	dialer := net.Dialer{Timeout: s.times.dial}
	c, err := dialer.DialContext(ctx, "tcp", s.replay)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	z, err := zmtp.Open(c, zmtp.Dealer, s.limits(), time.Now().Add(s.times.greet))
	if err == nil {
		err = z.Send(nil, binary.BigEndian.AppendUint64(nil, from))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	for first := true; ; first = false {
		frames, err := z.Receive(time.Now().Add(s.times.replayIdle))
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("replay: %w", err)
		}
		seq, payload, err := replayed(frames)
		switch {
		case err != nil:
			return err
		case seq == theEnd && first && known:
			return errRestarted
		case seq == theEnd:
			return nil
		case first && known && seq == from:
			if !s.same(payload) {
				return errRestarted
			}
			continue
		}
		if ok, next := s.expects(); ok && seq != next {
			return fmt.Errorf("the replay has %d in place of %d", seq, next)
		}
		s.take(s.src, seq, payload)
	}
}

// same reports whether a message is the last that was taken.
func (s *session) same(payload []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.known && s.src.last == identify(payload)
}

// replayed takes a replayed message apart: an empty frame, perhaps the topic, the sequence
// number and the payload.
func replayed(frames [][]byte) (seq uint64, payload []byte, err error) {
	n := len(frames)
	if n < 2 || n > 4 || len(frames[n-2]) != 8 {
		return 0, nil, fmt.Errorf("a replayed message has %d frames, and no sequence number", n)
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], nil
}
