package requestplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

const (
	closeGrace  = 5 * time.Second        // for handlers to return after Close
	hangUpGrace = 250 * time.Millisecond // for the last bytes of a connection
)

// TCPServer is the network [Server]. Make one with [ListenTCP].
type TCPServer struct {
	cfg ServerConfig
	log *slog.Logger
	ln  net.Listener
	reg *registry

	cancel context.CancelCauseFunc // of the accept loop and all requests

	mu       sync.Mutex
	sessions map[*session]struct{}
	loops    sync.WaitGroup // accept loops of the listener and of the sessions
	requests requestGroup

	strangers handshake.Lobby // connections in their handshake, which have no session yet that Close could end
	refused   handshake.Refusals
}

var _ Server = (*TCPServer)(nil)

// ListenTCP starts a server on cfg.Addr. Without a key it fails.
func ListenTCP(cfg ServerConfig) (*TCPServer, error) {
	cfg = cfg.withDefaults()
	if cfg.Key.IsZero() {
		return nil, fmt.Errorf("request plane: %w", handshake.ErrNoKey)
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("request plane: %w", err)
	}
	s := &TCPServer{
		cfg:      cfg,
		log:      cfg.Log,
		ln:       ln,
		reg:      newRegistry(cfg.Limits.MaxInFlight, cfg.Log),
		sessions: make(map[*session]struct{}),
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancelCause(context.Background())
	s.loops.Go(func() { s.acceptLoop(ctx) })
	return s, nil
}

// Handle implements [Server].
func (s *TCPServer) Handle(path string, h Handler) (func(context.Context) error, error) {
	return s.reg.handle(path, h)
}

// Addr implements [Server].
func (s *TCPServer) Addr() string { return s.ln.Addr().String() }

// InFlight implements [Server].
func (s *TCPServer) InFlight(path string) int { return s.reg.inFlight(path) }

// Close implements [Server]. Callers of running requests see ErrIncomplete.
func (s *TCPServer) Close() error {
	s.reg.close()
	s.ln.Close()
	s.cancel(ErrServerClosed)
	s.strangers.Close()

	// The answers of finished handlers must still reach their callers.
	s.mu.Lock()
	var ending sync.WaitGroup
	for sess := range s.sessions {
		ending.Go(func() {
			sess.wire.hangUp(hangUpGrace)
			sess.Close()
		})
	}
	s.mu.Unlock()
	ending.Wait()
	s.loops.Wait()
	if left := s.requests.wait(s.cfg.CloseGrace); left > 0 {
		return fmt.Errorf("close request plane server: %d handlers did not return within %s", left, s.cfg.CloseGrace)
	}
	return nil
}

// acceptLoop serves connections until ctx ends. ctx is the parent of all requests.
func (s *TCPServer) acceptLoop(ctx context.Context) {
	acceptAll(ctx, s.ln, s.log, func(conn net.Conn) {
		stranger := s.strangers.Enter(conn)
		s.loops.Go(func() { s.serve(ctx, conn, stranger) })
	})
}

// serve runs one connection until it ends.
func (s *TCPServer) serve(ctx context.Context, conn net.Conn, stranger *handshake.Guest) {
	log := s.log.With("peer", conn.RemoteAddr().String())
	greeted, err := s.cfg.greetClient(spoken, stranger)
	if err != nil {
		conn.Close()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, handshake.ErrWantsTLS): // a client without the setting, which connects again with TLS
			log.Debug("connection refused", "err", err)
		default:
			s.refused.Warn(log, "connection refused", "err", err)
		}
		return
	}
	sess, err := newSession(greeted, s.cfg.Liveness, false, s.log)
	if err != nil {
		log.Error("connection refused", "err", err)
		conn.Close()
		return
	}
	s.mu.Lock()
	closing := ctx.Err() != nil
	if !closing {
		s.sessions[sess] = struct{}{}
	}
	s.mu.Unlock()

	for !closing {
		st, err := sess.AcceptStream()
		if err != nil {
			break
		}
		// The running requests, and as many answers that their callers have not read yet.
		if n := sess.NumStreams(); n > 2*s.cfg.Limits.MaxInFlight+maxOpening {
			log.Warn("caller does not close its side of streams: closing the connection", "streams", n)
			break
		}
		if !s.requests.add() {
			st.Close()
			break
		}
		c := &tcpCall{server: s, sess: sess, st: st}
		go func() {
			defer s.requests.done()
			c.serve(ctx)
		}()
	}
	sess.Close()
	log.Debug("connection ended", "reason", sess.reason())
	s.mu.Lock()
	delete(s.sessions, sess)
	s.mu.Unlock()
}
