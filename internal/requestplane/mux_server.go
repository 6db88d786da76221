package requestplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
)

const (
	closeGrace  = 5 * time.Second        // for handlers to return after Close
	hangUpGrace = 250 * time.Millisecond // for the last bytes of a connection
)

// MuxServer is the [Server] of the tcp and the nats request plane: each connection is
// multiplexed by yamux. Make one with [ListenTCP] or [ListenNATS].
type MuxServer struct {
	cfg  ServerConfig
	log  *slog.Logger
	addr string
	ln   net.Listener
	reg  *registry

	cancel context.CancelCauseFunc // of the accept loop and all requests

	mu       sync.Mutex
	sessions map[*session]struct{}
	loops    sync.WaitGroup // accept loops of the listener and of the sessions
	requests requestGroup

	strangers handshake.Lobby // connections in their handshake, which have no session yet that Close could end
	refused   handshake.Refusals
}

var _ Server = (*MuxServer)(nil)

// ListenTCP starts a server on cfg.Addr. Without a key it fails.
func ListenTCP(cfg ServerConfig) (*MuxServer, error) {
	return listenMux(cfg, cluster.PlaneTCP, func(cfg ServerConfig) (net.Listener, error) { return net.Listen("tcp", cfg.Addr) })
}

// ListenNATS starts a server that is reached over cfg.Pipes, at a subject of its own. It waits
// for NATS as long as a handshake may take, and goes on without it: requests arrive once there
// is a connection. Without a key it fails.
func ListenNATS(cfg ServerConfig) (*MuxServer, error) {
	return listenMux(cfg, cluster.PlaneNATS, func(cfg ServerConfig) (net.Listener, error) {
		if cfg.Pipes == nil {
			return nil, errNoPipes
		}
		ctx, cancel := context.WithTimeout(context.Background(), cfg.HandshakeTimeout)
		defer cancel()
		return cfg.Pipes.Listen(ctx)
	})
}

func listenMux(cfg ServerConfig, plane cluster.Plane, listen func(ServerConfig) (net.Listener, error)) (*MuxServer, error) {
	cfg = cfg.withDefaults()
	if cfg.Key.IsZero() {
		return nil, fmt.Errorf("request plane: %w", handshake.ErrNoKey)
	}
	ln, err := listen(cfg)
	if err != nil {
		return nil, fmt.Errorf("request plane: %w", err)
	}
	s := &MuxServer{
		cfg:      cfg,
		log:      cfg.Log,
		addr:     plane.Server(ln.Addr().String()),
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
func (s *MuxServer) Handle(path string, h Handler) (func(context.Context) error, error) {
	return s.reg.handle(path, h)
}

// Addr implements [Server].
func (s *MuxServer) Addr() string { return s.addr }

// InFlight implements [Server].
func (s *MuxServer) InFlight(path string) int { return s.reg.inFlight(path) }

// Close implements [Server]. Callers of running requests see ErrIncomplete.
func (s *MuxServer) Close() error {
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
func (s *MuxServer) acceptLoop(ctx context.Context) {
	acceptAll(ctx, s.ln, s.log, func(conn net.Conn) {
		stranger := s.strangers.Enter(conn)
		s.loops.Go(func() { s.serve(ctx, conn, stranger) })
	})
}

// serve runs one connection until it ends.
func (s *MuxServer) serve(ctx context.Context, conn net.Conn, stranger *handshake.Guest) {
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
		c := &muxCall{server: s, sess: sess, st: st}
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
