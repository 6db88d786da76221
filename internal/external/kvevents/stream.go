package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/external/kvevents/zmtp"
)

// Bounds of messages. A prompt of 100,000 tokens takes half a megabyte.
const (
	maxMessage = 16 << 20
	maxFrames  = 8
	// maxPublishers bounds the connections to one port.
	maxPublishers = 16
)

func (f *Follower) limits() zmtp.Limits {
	return zmtp.Limits{Message: maxMessage, Frames: maxFrames, Begun: f.times.message}
}

// connect follows the publisher at an address, again and again.
func (f *Follower) connect(ctx context.Context, number int, addr string) {
	s := f.add(number)
	defer f.leave(s)
	wait := f.times.retryMin
	for ctx.Err() == nil {
		begin := time.Now()
		dialer := net.Dialer{Timeout: f.times.dial}
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			err = f.follow(ctx, c, s, true)
		}
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		f.complain("KV events of a server cannot be followed; trying again", slog.String("address", addr), slog.Any("error", err))
		f.mu.Unlock()
		if time.Since(begin) > f.times.healthyIn {
			wait = f.times.retryMin
		}
		if !sleep(ctx, wait/2+rand.N(wait/2+1)) {
			return
		}
		wait = min(2*wait, f.times.retryMax)
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// accept follows the publishers that connect to a port, each for as long as it is connected.
func (f *Follower) accept(ctx context.Context, number int, ln net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxPublishers)
	for {
		c, err := ln.Accept()
		if err != nil {
			// Too many open files, say.
			if errors.Is(err, net.ErrClosed) || !sleep(ctx, f.times.retryMin) {
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Close()
			f.mu.Lock()
			f.complain("too many servers connect to publish KV events", slog.Int("rank", number), slog.String("address", c.RemoteAddr().String()))
			f.mu.Unlock()
			continue
		}
		running.Go(func() {
			s := f.add(number)
			defer func() { f.leave(s); <-slots }()
			// Where several publish at one port, it is not known whose messages are replayed.
			if err := f.follow(ctx, c, s, len(slots) == 1); ctx.Err() == nil {
				f.mu.Lock()
				f.complain("a server that published KV events has left", slog.Int("rank", number), slog.Any("error", err))
				f.mu.Unlock()
			}
		})
	}
}

// session is one connection to a publisher.
type session struct {
	*Follower
	src *source
	// live is the last sequence number of the connection, if there was one. Messages before
	// replayed were replayed and come again.
	begun    bool
	live     uint64
	replayed uint64
	replay   string // address; empty if there is none
}

// follow follows a publisher until its connection, which is closed, or ctx ends.
func (f *Follower) follow(ctx context.Context, c net.Conn, src *source, replay bool) error {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	z, err := zmtp.Open(c, zmtp.Sub, f.limits(), time.Now().Add(f.times.greet))
	if err != nil {
		return err
	}
	if err := z.Subscribe(f.cfg.Topic); err != nil {
		return err
	}
	s := session{Follower: f, src: src}
	if replay && len(f.replays) > 0 {
		s.replay = f.replays[src.number]
	}
	f.count(func(n *Figures) { n.Publishers++ })
	defer f.count(func(n *Figures) { n.Publishers-- })
	if err := s.begin(ctx); err != nil {
		return err
	}
	for {
		frames, err := z.Receive(time.Time{})
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server has closed the connection")
			}
			return err
		}
		s.message(ctx, frames)
	}
}

func (f *Follower) count(change func(*Figures)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.figures)
}

// message takes the frames of a message: topic, sequence number, payload.
func (s *session) message(ctx context.Context, frames [][]byte) {
	if len(frames) != 3 || len(frames[1]) != 8 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.figures.Undecodable++
		s.complain("a server sends messages that are no KV events", slog.Int("rank", s.src.number), slog.Int("frames", len(frames)))
		return
	}
	seq := binary.BigEndian.Uint64(frames[1])
	known, next := s.expects()
	switch {
	case s.begun && seq <= s.live, known && seq < next && seq >= s.replayed:
		s.restarted(ctx)
	case known && seq > next:
		s.missed(ctx, seq)
	}
	s.begun, s.live = true, seq
	switch known, next = s.expects(); {
	case known && seq < next:
		return // replayed
	case known && seq > next: // still
		s.giveUp(func(*Figures) {})
	}
	s.take(s.src, seq, frames[2])
}

func (s *session) expects() (known bool, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.known, s.src.next
}

// restarted forgets a server that counts from the beginning again, and learns what it has
// published since.
func (s *session) restarted(ctx context.Context) {
	s.giveUp(func(n *Figures) { n.Restarts++ })
	s.learn(ctx)
}

// giveUp forgets the blocks of the publisher.
func (s *session) giveUp(why func(*Figures)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why(&s.figures)
	s.forget(s.src)
	s.replayed = 0
}

// missed asks for the messages before the one with a sequence number, or forgets what the
// server holds.
func (s *session) missed(ctx context.Context, seq uint64) {
	now := time.Now()
	s.mu.Lock()
	s.figures.Gaps++
	asks := s.replay != "" && now.Sub(s.src.replayed) > s.times.cooldown
	if asks {
		s.src.replayed = now
	}
	s.mu.Unlock()
	err := errNoReplay
	if asks {
		err = s.repeat(ctx, seq)
	}
	if err == nil {
		s.count(func(n *Figures) { n.Replays++ })
		return
	}
	s.mu.Lock()
	s.complain("KV events of a server were lost; its blocks are forgotten", slog.Int("rank", s.src.number), slog.Any("error", err))
	s.mu.Unlock()
	if errors.Is(err, errRestarted) {
		s.restarted(ctx)
		return
	}
	s.giveUp(func(*Figures) {})
	if asks && !errors.Is(err, errUnreachable) {
		s.learn(ctx) // what is still to be had
	}
}
