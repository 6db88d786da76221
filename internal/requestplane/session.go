package requestplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// maxOpening is how many streams may wait for the peer's first sign of life. It
	// is far above what a healthy peer lets come together, so that opening a stream
	// does not block; a dead peer is found by the keep-alive. Each costs 8 bytes of
	// every session, whether it comes or not.
	maxOpening = 1024
	// maxClosing is how many streams a caller may have closed without the server
	// having done the same. The server does as soon as handlers see that the caller
	// left, so one with more than all that it may run has a bug.
	maxClosing = DefaultMaxInFlight + maxOpening
)

// session is one multiplexed connection.
type session struct {
	*yamux.Session
	wire *coalescer
}

func newSession(conn net.Conn, live Liveness, client bool, log *slog.Logger) (*session, error) {
	cfg := yamux.DefaultConfig()
	cfg.AcceptBacklog = maxOpening
	cfg.KeepAliveInterval = live.KeepAlive
	cfg.ConnectionWriteTimeout = live.PeerTimeout
	cfg.StreamOpenTimeout = 0 // one goroutine per stream for what the keep-alive does
	// Its timers outlive the session and keep all of it, buffers included. They
	// also take the end of an answer from a caller who reads slowly. What they are
	// for is a peer that never closes its side: both sides count those streams.
	cfg.StreamCloseTimeout = 0
	cfg.LogOutput = nil
	cfg.Logger = muxLogger{log.With("peer", conn.RemoteAddr().String())}

	wire := newCoalescer(conn, live.PeerTimeout)
	mux := yamux.Client
	if !client {
		mux = yamux.Server
	}
	ys, err := mux(wire, cfg)
	if err != nil {
		wire.Close()
		return nil, fmt.Errorf("multiplex: %w", err)
	}
	return &session{Session: ys, wire: wire}, nil
}

// reason says why a closed session closed.
func (s *session) reason() error {
	for s.IsClosed() {
		st, err := s.AcceptStream()
		if err == nil {
			st.Close()
			continue
		}
		switch {
		case errors.Is(err, yamux.ErrKeepAliveTimeout), errors.Is(err, yamux.ErrConnectionWriteTimeout):
			return errors.New("peer does not answer")
		case errors.Is(err, io.EOF):
			return errors.New("closed by peer")
		case errors.Is(err, yamux.ErrSessionShutdown):
			return errors.New("connection closed")
		}
		return err
	}
	return nil
}

// interrupt is a deadline that has passed: it wakes blocked reads or writes.
// noDeadline takes it back.
var (
	interrupt  = time.Unix(1, 0)
	noDeadline time.Time
)

// muxLogger sends the multiplexer's own remarks to the debug log; what matters of
// them comes back as errors.
type muxLogger struct{ log *slog.Logger }

func (l muxLogger) emit(text string) {
	l.log.Log(context.Background(), slog.LevelDebug, "multiplexer", "detail", strings.TrimSpace(text))
}
func (l muxLogger) enabled() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }
func (l muxLogger) Print(v ...any) {
	if l.enabled() {
		l.emit(fmt.Sprint(v...))
	}
}
func (l muxLogger) Println(v ...any) {
	if l.enabled() {
		l.emit(fmt.Sprintln(v...))
	}
}
func (l muxLogger) Printf(format string, v ...any) {
	if l.enabled() {
		l.emit(fmt.Sprintf(format, v...))
	}
}
