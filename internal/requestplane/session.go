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
	// maxOpening is the number of streams that may wait for the peer's first answer. It
	// is far above the number at a healthy peer, so that opening a stream does not block;
	// the keep-alive detects a dead peer. Each costs every session 8 bytes, used or not.
	maxOpening = 1024
	// maxClosing is the number of streams that a caller has closed and the server has
	// not. The server closes them as soon as its handlers see that the caller left. A
	// server with more than it may run has a bug.
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
	cfg.StreamOpenTimeout = 0 // one goroutine per stream would repeat the keep-alive's work
	// Its timers outlive the session and keep all of it in memory, buffers included. They
	// also cut off the end of an answer when the caller reads slowly. They guard against
	// a peer that never closes its side, but both sides count those streams anyway.
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

// reason returns the error that closed the session.
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

// interrupt is a deadline in the past: it wakes blocked reads or writes. noDeadline
// clears it.
var (
	interrupt  = time.Unix(1, 0)
	noDeadline time.Time
)

// muxLogger writes the multiplexer's messages to the debug log. Its important failures
// are also returned as errors.
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
