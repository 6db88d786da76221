package requestplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
)

// HTTPServer is the [Server] of the http request plane. Nodes reach it over HTTP/2 on a
// connection that begins with the handshake, as on the tcp plane. Others, such as curl,
// reach it over HTTP/1.1 or HTTP/2 with a token, see [HTTPToken]. Make one with
// [ListenHTTP].
type HTTPServer struct {
	cfg   ServerConfig
	log   *slog.Logger
	ln    net.Listener
	reg   *registry
	srv   *http.Server
	token string

	ctx      context.Context // the parent of all requests; ends with ErrServerClosed
	cancel   context.CancelCauseFunc
	greeted  chan net.Conn  // connections for srv
	loops    sync.WaitGroup // accept loops and handshakes
	requests requestGroup

	mu    sync.Mutex
	wires map[*httpWire]struct{}

	strangers handshake.Lobby // connections that have not proved anything
	refused   handshake.Refusals
}

var _ Server = (*HTTPServer)(nil)

// httpIdle ends connections without requests. It exceeds the idle time of clients, which
// close theirs first.
const httpIdle = 10 * time.Minute

// ListenHTTP starts a server on cfg.Addr. Without a key it fails.
func ListenHTTP(cfg ServerConfig) (*HTTPServer, error) {
	cfg = cfg.withDefaults()
	if cfg.Key.IsZero() {
		return nil, fmt.Errorf("request plane: %w", handshake.ErrNoKey)
	}
	if cfg.TLS != nil {
		cfg.TLS = cfg.TLS.Clone()
		cfg.TLS.NextProtos = []string{"h2", "http/1.1"} // for strangers; nodes ask for none
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("request plane: %w", err)
	}
	s := &HTTPServer{
		cfg: cfg, log: cfg.Log, ln: ln, token: HTTPToken(cfg.Key),
		reg:     newRegistry(cfg.Limits.MaxInFlight, cfg.Log),
		greeted: make(chan net.Conn),
		wires:   make(map[*httpWire]struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // TLS, if any, is below it
	s.srv = &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		Protocols:         &protocols,
		ReadHeaderTimeout: cfg.HandshakeTimeout,
		IdleTimeout:       httpIdle,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, wireKey{}, c) },
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			// More than may run, so that those too many are told that there is overload.
			MaxConcurrentStreams:          cfg.Limits.MaxInFlight + maxOpening,
			MaxReceiveBufferPerConnection: connWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			SendPingTimeout:               cfg.Liveness.KeepAlive,
			PingTimeout:                   cfg.Liveness.PeerTimeout,
			WriteByteTimeout:              cfg.Liveness.PeerTimeout,
		},
	}
	s.loops.Go(s.acceptLoop)
	s.loops.Go(func() { _ = s.srv.Serve(greetedListener{s}) }) // until Close
	return s, nil
}

// Handle implements [Server].
func (s *HTTPServer) Handle(path string, h Handler) (func(context.Context) error, error) {
	return s.reg.handle(path, h)
}

// Addr implements [Server].
func (s *HTTPServer) Addr() string { return cluster.PlaneHTTP.Server(s.ln.Addr().String()) }

// InFlight implements [Server].
func (s *HTTPServer) InFlight(path string) int { return s.reg.inFlight(path) }

// Close implements [Server]. Callers of running requests see ErrIncomplete.
func (s *HTTPServer) Close() error {
	s.reg.close()
	s.ln.Close()
	s.cancel(ErrServerClosed)
	s.strangers.Close()

	// The answers of finished handlers must still reach their callers.
	ctx, cancel := context.WithTimeout(context.Background(), hangUpGrace)
	defer cancel()
	var ending sync.WaitGroup
	s.mu.Lock()
	for w := range s.wires {
		w.held.Store(true) // Shutdown would close it before its last bytes are written
		ending.Go(func() {
			w.hangUp(hangUpGrace)
			_ = w.end(ErrServerClosed)
		})
	}
	s.mu.Unlock()
	ending.Go(func() { _ = s.srv.Shutdown(ctx) })
	ending.Wait()
	_ = s.srv.Close()
	s.loops.Wait()
	if left := s.requests.wait(s.cfg.CloseGrace); left > 0 {
		return fmt.Errorf("close request plane server: %d handlers did not return within %s", left, s.cfg.CloseGrace)
	}
	return nil
}

func (s *HTTPServer) acceptLoop() {
	acceptAll(s.ctx, s.ln, s.log, func(conn net.Conn) {
		stranger := s.strangers.Enter(conn)
		s.loops.Go(func() { s.greet(conn, stranger) })
	})
}

// greet runs the handshake with a node, or lets a stranger in who has to show a token soon.
func (s *HTTPServer) greet(conn net.Conn, stranger *handshake.Guest) {
	greeted, err := s.cfg.greetClient(spokenHTTP, stranger)
	foreign := errors.Is(err, handshake.ErrForeign)
	if err != nil && !foreign {
		conn.Close()
		if s.ctx.Err() == nil && !errors.Is(err, handshake.ErrWantsTLS) {
			s.refused.Warn(s.log, "connection refused", "peer", conn.RemoteAddr().String(), "err", err)
		}
		return
	}
	w := newHTTPWire(greeted)
	w.proved, w.secure = !foreign, isTLS(greeted)
	w.onGone = func() { s.forget(w) }
	if foreign {
		s.admitLater(w, conn)
	}
	s.mu.Lock()
	open := s.ctx.Err() == nil
	if open {
		s.wires[w] = struct{}{}
	}
	s.mu.Unlock()
	if open {
		select {
		case s.greeted <- w:
			return
		case <-s.ctx.Done():
		}
	}
	_ = w.Close()
}

// admitLater keeps a connection in the lobby until its client shows a token, and ends it
// if that takes too long.
func (s *HTTPServer) admitLater(w *httpWire, conn net.Conn) {
	guest := s.strangers.Enter(conn)
	late := time.AfterFunc(time.Hour, func() { _ = w.end(errors.New("no token in time")) })
	w.admit = sync.OnceFunc(func() {
		late.Stop()
		guest.Leave()
	})
	late.Reset(s.cfg.HandshakeTimeout) // not before admit is set
}

// forget removes a connection that has ended.
func (s *HTTPServer) forget(w *httpWire) {
	if w.admit != nil {
		w.admit()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wires, w)
}

// wireKey is the key of a connection in the contexts of its requests.
type wireKey struct{}

// greetedListener hands connections to the HTTP server.
type greetedListener struct{ s *HTTPServer }

// Accept implements [net.Listener].
func (l greetedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.s.greeted:
		return c, nil
	case <-l.s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The server's Close ends Accept.
func (greetedListener) Close() error { return nil }

// Addr implements [net.Listener].
func (l greetedListener) Addr() net.Addr { return l.s.ln.Addr() }

func isTLS(conn net.Conn) bool {
	for {
		if _, ok := conn.(*tls.Conn); ok {
			return true
		}
		u, ok := conn.(interface{ Unwrap() net.Conn })
		if !ok {
			return false
		}
		conn = u.Unwrap()
	}
}
