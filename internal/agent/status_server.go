package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/attach"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/frontend"
)

// statusServer answers /live (the process runs), /health (the node works, or the reasons
// why not), /metrics and, if configured, /debug/pprof.
type statusServer struct {
	addr   string
	scheme string // http:// or https://
	srv    *http.Server
	done   chan struct{}
}

func startStatusServer(a *Agent) (*statusServer, error) {
	secure, err := a.serverTLS(a.cfg.Status.TLSFiles(), "http/1.1")
	if err != nil {
		return nil, fmt.Errorf("start the status server: %w", err)
	}
	var ln net.Listener
	err = a.onFixedPort("status", a.statusListen(), a.cfg.Status.Listen, func(addr string) (err error) {
		ln, err = a.listenAsBefore(addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start the status server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "live", "uptime": uptime(a.started)})
	})
	mux.HandleFunc("GET /health", a.serveHealth)
	key := string(a.cfg.Frontend.APIKey)
	mux.Handle("GET /metrics", frontend.Insiders(key, a.metrics.Handler()))
	a.attached.Register(mux, attach.Token(a.planeKey()))
	if a.cfg.Status.Profiles {
		mux.Handle("GET /debug/pprof/{name}", frontend.Insiders(key, http.HandlerFunc(a.serveProfile)))
	}
	s := &statusServer{
		addr: ln.Addr().String(), scheme: "http://",
		srv: &http.Server{
			Handler: frontend.Browsers{Keyed: key != ""}.Guard(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: profileMost + 30*time.Second,
			IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
		},
		done: make(chan struct{}),
	}
	ln = bound(ln, statusConns)
	if secure != nil {
		s.scheme, ln = "https://", tls.NewListener(ln, secure)
	}
	go func() {
		defer close(s.done)
		if err := s.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("status server ended", "error", err)
		}
	}()
	return s, nil
}

// listenAsBefore listens at addr. In place of any free port it takes the one of the run
// before, if that is free: programs of this machine that attach themselves know it.
func (a *Agent) listenAsBefore(addr string) (ln net.Listener, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if before := a.dir.StatusPort(); port == "0" && before != "" {
		ln, _ = net.Listen("tcp", net.JoinHostPort(host, before)) // another port does
	}
	if ln == nil {
		if ln, err = net.Listen("tcp", addr); err != nil {
			return nil, err
		}
	}
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	if err := a.dir.SetStatusPort(port); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

func (s *statusServer) close(ctx context.Context) error {
	err := s.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.srv.Close())
	}
	<-s.done
	return err
}

// statusConns is the most connections of the status server at a time; others wait.
const statusConns = 128

// bounded is a listener that limits the number of open connections.
type bounded struct {
	net.Listener
	slots chan struct{}
	once  sync.Once
	done  chan struct{} // closed with the listener
}

func bound(ln net.Listener, n int) net.Listener {
	return &bounded{Listener: ln, slots: make(chan struct{}, n), done: make(chan struct{})}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.done:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-b.slots })}, nil
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	free func()
}

func (c *boundedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// Values of status and endpoints in the answer of /health.
const (
	healthReady    = "ready"
	healthNotReady = "notready"
)

// health is the answer of /health, in Dynamo's format with workers and reasons added.
// Callers that are no insiders get only status and uptime.
type health struct {
	Status    string                   `json:"status"`
	Uptime    map[string]int64         `json:"uptime"`
	Endpoints map[string]string        `json:"endpoints,omitzero"` // by name, of all workers; nil is left out
	Workers   map[string]cluster.State `json:"workers,omitempty"`
	Reasons   []string                 `json:"reasons,omitempty"`
	Alarms    []string                 `json:"alarms,omitempty"` // problems to solve although the node works
}

func (a *Agent) serveHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	h := health{Status: healthReady, Uptime: uptime(a.started), Endpoints: a.workers.endpoints(), Workers: map[string]cluster.State{}, Alarms: a.alarms.texts()}
	if a.stopping.Load() {
		h.Reasons = append(h.Reasons, "the node is stopping")
	}
	shared := &h.Reasons
	if a.cfg.Discovery.InKubernetes() {
		// Readiness is discovery there: what all nodes share must not take them all out.
		shared = &h.Alarms
	}
	if err := a.storeAnswers(ctx); err != nil {
		*shared = append(*shared, err.Error())
	}
	if !a.stores.bus.Connected() {
		*shared = append(*shared, "nats: not connected to "+a.stores.natsURL)
	}
	for _, st := range a.workers.statuses() {
		h.Workers[st.Name] = st.State
		switch {
		case st.State == cluster.StateFailed:
			h.Reasons = append(h.Reasons, st.Name+": "+st.Reason)
		case st.Unhealthy != "":
			h.Reasons = append(h.Reasons, st.Name+" is unhealthy: "+st.Unhealthy)
		}
	}
	code := http.StatusOK
	if len(h.Reasons) > 0 {
		h.Status, code = healthNotReady, http.StatusServiceUnavailable
	}
	if !frontend.Insider(r, string(a.cfg.Frontend.APIKey)) {
		h.Endpoints, h.Workers, h.Reasons, h.Alarms = nil, nil, nil, nil
	}
	writeJSON(w, code, h)
}

// storeAnswers returns why the store does not answer. Probes of many pods must not ask the
// Kubernetes API, which says itself when it is silent.
func (a *Agent) storeAnswers(ctx context.Context) error {
	if !a.cfg.Discovery.InKubernetes() {
		_, err := a.stores.store.Ping(ctx)
		return err
	}
	ctx, done := a.stores.store.WhileAnswering(ctx)
	defer done()
	return context.Cause(ctx)
}

func uptime(since time.Time) map[string]int64 {
	d := time.Since(since)
	return map[string]int64{"secs": int64(d / time.Second), "nanos": int64(d % time.Second)}
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // an error means that the caller has left
}
