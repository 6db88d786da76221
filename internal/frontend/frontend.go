package frontend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Config is what a frontend needs.
type Config struct {
	DRT  *runtime.DRT // the node's runtime; lends its store, bus and connections
	Node string       // name of the node, shown in events

	Host           string
	Port           int // 0 takes a free one
	AdvertiseHost  string
	BodyLimit      int64         // bytes
	APIKey         string        // empty lets everyone in
	RequestTimeout time.Duration // 0: no limit
	MigrationLimit int           // moves of one request to another worker
	Policy         string        // of the router

	Metrics *metrics.Registry
	Log     *slog.Logger
}

// ErrPortInUse is returned by New when another process listens on the port.
var ErrPortInUse = errors.New("port is in use")

// Frontend is one HTTP frontend. New binds it, Run serves.
type Frontend struct {
	cfg             Config
	log             *slog.Logger
	ln              net.Listener
	srv             *http.Server
	url             string
	registry        *registry
	workers         *runtime.Client // decode workers
	files           *runtime.Client // where their model files are
	policy          router.Policy
	load            *router.Load
	metrics         *metrics.Frontend
	registryHandler http.Handler
	stats           *stats

	stage      atomic.Int32 // stageReady, ...
	inFlight   sync.WaitGroup
	inFlightMu sync.Mutex // makes admission and draining exclude each other
	closed     sync.Once
	done       chan struct{} // closed when Run has returned
}

// Stages of a frontend's life.
const (
	stageReady int32 = iota
	stageDraining
	stageStopping
)

// New binds the port and starts following the cluster. It fails with ErrPortInUse
// when the port is taken. Run or Close must follow.
func New(ctx context.Context, cfg Config) (f *Frontend, err error) {
	policy, err := router.NewPolicy(cfg.Policy)
	if err != nil {
		return nil, err
	}
	f = &Frontend{
		cfg: cfg, log: cfg.Log, policy: policy, load: router.NewLoad(),
		metrics: metrics.NewFrontend(cfg.Metrics), registryHandler: cfg.Metrics.Handler(),
		stats: newStats(), done: make(chan struct{}),
	}
	addr := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	if f.ln, err = net.Listen("tcp", addr); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("frontend %s: %w", addr, ErrPortInUse)
		}
		return nil, fmt.Errorf("frontend: %w", err)
	}
	defer func() {
		if err != nil {
			f.release()
		}
	}()
	f.url = "http://" + f.advertised()
	if f.workers, err = runtime.NewClient(context.WithoutCancel(ctx), cfg.DRT, cluster.RoleDecode.Component(), cluster.EndpointGenerate); err != nil {
		return nil, err
	}
	if f.files, err = runtime.NewClient(context.WithoutCancel(ctx), cfg.DRT, cluster.RoleDecode.Component(), cluster.EndpointModelFiles); err != nil {
		return nil, err
	}
	if f.registry, err = newRegistry(ctx, f); err != nil {
		return nil, err
	}
	f.srv = &http.Server{
		Handler: f.routes(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
	}
	return f, nil
}

// advertised is the host:port in the URL that others are given.
func (f *Frontend) advertised() string {
	host, port, _ := net.SplitHostPort(f.ln.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = f.cfg.AdvertiseHost
	}
	return net.JoinHostPort(host, port)
}

// URL is the base URL of the frontend, without a path.
func (f *Frontend) URL() string { return f.url }

// Run serves until ctx ends or Close is called, then cancels what is in flight and
// releases everything.
func (f *Frontend) Run(ctx context.Context) error {
	defer close(f.done)
	defer f.release()
	announced, err := f.cfg.DRT.Announce(ctx, cluster.ComponentFrontend, cluster.EndpointHTTP, cluster.Transport{HTTP: f.url})
	if err != nil {
		return fmt.Errorf("announce the frontend: %w", err)
	}
	defer func() {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := announced.Close(leave); err != nil {
			f.log.Debug("frontend not withdrawn", "error", err)
		}
	}()
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.registry.run(running) })
	wg.Go(func() { f.publishStats(running) })
	served := make(chan error, 1)
	go func() { served <- f.srv.Serve(f.ln) }()
	select {
	case <-ctx.Done():
		err = nil
	case err = <-served:
		served <- err
	}
	f.stage.Store(stageStopping)
	_ = f.srv.Close() // cancels the contexts of requests in flight
	if serr := <-served; err == nil || errors.Is(err, http.ErrServerClosed) {
		err = serr
	}
	f.inFlight.Wait()
	stop()
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// Drain refuses new requests and waits for those in flight until ctx ends.
func (f *Frontend) Drain(ctx context.Context) error {
	f.inFlightMu.Lock()
	f.stage.CompareAndSwap(stageReady, stageDraining)
	f.inFlightMu.Unlock()
	idle := make(chan struct{})
	go func() {
		f.inFlight.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests in flight: %w", f.stats.current(), context.Cause(ctx))
	}
}

// Close ends Run, if it runs, and releases the port.
func (f *Frontend) Close() {
	f.closed.Do(func() { _ = f.srv.Close() })
}

func (f *Frontend) release() {
	f.ln.Close()
	if f.registry != nil {
		f.registry.close()
	}
	if f.files != nil {
		f.files.Close()
	}
	if f.workers != nil {
		f.workers.Close()
	}
}

// admit counts a request as in flight, unless the frontend is on its way out.
func (f *Frontend) admit() (leave func(), err *apiError) {
	f.inFlightMu.Lock()
	defer f.inFlightMu.Unlock()
	if f.stage.Load() != stageReady {
		return nil, unavailable("This server is shutting down.", 5*time.Second)
	}
	f.inFlight.Add(1)
	f.stats.enter()
	return func() { f.stats.leave(); f.inFlight.Done() }, nil
}

// announce publishes a router decision.
func (f *Frontend) announce(ctx context.Context, d cluster.RouterDecision) {
	if bus := f.cfg.DRT.Bus(); bus != nil {
		subject := events.Subject(f.cfg.DRT.Namespace(), cluster.ComponentFrontend, cluster.TopicRouterDecisions)
		_ = bus.Publish(ctx, subject, d) // lost events are counted by the bus
	}
}
