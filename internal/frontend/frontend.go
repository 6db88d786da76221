package frontend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/media/source"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/replicasync"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Config holds the settings and dependencies of a frontend.
type Config struct {
	Runtime *runtime.DistributedRuntime // the node's runtime; lends its store, bus and connections
	Node    string                      // name of the node, shown in events

	Host          string
	Port          int // 0 takes a free one
	AdvertiseHost string
	// TLS makes the frontend serve HTTPS, and offer [Protocols]; nil means HTTP/1.1 without
	// TLS. With client certificates, clients that have one see what an API key would show.
	TLS       *tls.Config
	BodyLimit int64  // bytes
	APIKey    string // several are separated by commas; empty lets everyone in
	// TrustedProxies are addresses and networks whose X-Forwarded-For header is trusted.
	TrustedProxies []string
	CORSOrigins    []string      // see Browsers
	AllowedHosts   []string      // see Browsers
	RequestTimeout time.Duration // 0: no limit
	WriteTimeout   time.Duration // the longest that a client may not read; 0: the default
	MigrationLimit int           // moves of one request to another worker
	// NoKVEvents makes the frontend guess the contents of caches by where it has sent
	// prompts, which it assumes there for KVTTL.
	NoKVEvents bool
	KVTTL      time.Duration
	// NoReplicaSync makes the frontend count only its own requests in flight.
	NoReplicaSync bool
	// Settings returns the current run-time settings. It must not block.
	Settings func() Settings
	// Media loads the images that requests name.
	Media *source.Guard
	// SetBusy stores limits of the settings for all frontends.
	SetBusy func(ctx context.Context, c BusyChange) error

	Metrics *metrics.Registry
	Log     *slog.Logger
}

// ErrPortInUse is returned by New when another process listens on the port.
var ErrPortInUse = errors.New("port is in use")

// errStopping is the cause with which requests end that are in flight when Run ends.
var errStopping = errors.New("the frontend stops")

// Frontend is one HTTP frontend. New binds it, Run serves.
type Frontend struct {
	cfg      Config
	log      *slog.Logger
	limits   limits
	ln       net.Listener
	srv      *http.Server
	url      string
	registry *registry
	workers  *runtime.Client   // decode workers
	files    *runtime.Client   // endpoints that serve their model files
	prefills *runtime.Client   // prefill workers that the frontend can ask first
	clearing []*runtime.Client // endpoints that clear caches, of decode and prefill workers
	caches   *caches
	sessions *sessions
	policies map[string]router.Policy
	// load counts requests at decode workers. prefillLoad counts prompts that prefill
	// workers compute, or whose KV they keep. Those of other frontends are among them as
	// long as replicas follows them; it is nil while replicasOff says why not.
	load, prefillLoad *router.Load
	candidates        candidateLists
	replicas          *replicasync.Sync
	replicasOff       string
	metrics           *metrics.Frontend
	stats             *stats
	record            *record
	decisions         *decisions
	gate              *gate
	tenants           *tenants
	admission         *admission
	intake            *intake
	contents          *contents
	loads             *loads

	// ctx is the parent of all requests; it ends with errStopping.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	started   bool              // Run or an earlier Close has begun
	closing   bool              // Close was called
	announced []*runtime.Served // in discovery, while Run serves
	withdrawn bool              // from discovery, for good
	awaiting  chan struct{}     // a slot for each request in awaitModel
	stopCh    chan struct{}     // closed once by Close
	doneCh    chan struct{}     // closed when everything is released
}

// New binds the port and starts following the cluster. It fails with ErrPortInUse
// when the port is taken. Run or Close must follow.
func New(ctx context.Context, cfg Config) (*Frontend, error) {
	if _, err := router.NewPolicy(cfg.Settings().Policy); err != nil {
		return nil, err
	}
	browsers := Browsers{Origins: cfg.CORSOrigins, Hosts: cfg.AllowedHosts, Keyed: cfg.APIKey != ""}
	if err := browsers.check(); err != nil {
		return nil, err
	}
	tenants, err := newTenants(apiKeys(cfg.APIKey), cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	if cfg.Media == nil {
		if cfg.Media, err = source.New(source.Config{}); err != nil {
			return nil, err
		}
	}
	addr := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("frontend %s: %w", addr, ErrPortInUse)
	case err != nil:
		return nil, fmt.Errorf("frontend: %w", err)
	}
	f := &Frontend{
		cfg: cfg, log: cfg.Log, limits: defaultLimits(), ln: ln,
		policies: policies(), sessions: newSessions(), load: router.NewLoad(), prefillLoad: router.NewLoad(),
		metrics: metrics.NewFrontend(cfg.Metrics), stats: newStats(), record: &record{since: time.Now()}, decisions: newDecisions(), gate: newGate(),
		tenants: tenants, admission: newAdmission(), intake: newIntake(cfg.BodyLimit), contents: newContents(), loads: newLoads(),
		awaiting: make(chan struct{}, maxAwaiting), stopCh: make(chan struct{}), doneCh: make(chan struct{}),
	}
	f.limits.write = cmp.Or(cfg.WriteTimeout, f.limits.write)
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	f.url = "http://" + f.advertised()
	if cfg.TLS != nil {
		f.url = "https://" + f.advertised()
	}
	if err := f.watch(context.WithoutCancel(ctx)); err != nil {
		f.release()
		return nil, err
	}
	f.srv = &http.Server{
		Handler: browsers.Guard(f.routes()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return f.ctx }, ConnContext: withConn,
		ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug), TLSConfig: cfg.TLS,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingAfter, WriteByteTimeout: 2 * f.limits.write,
		},
	}
	return f, nil
}

// Protocols are the application protocols that a frontend with TLS offers.
func Protocols() []string { return []string{"h2", "http/1.1"} }

const (
	// maxStreams is the most requests of one connection with HTTP/2 at a time; others wait.
	maxStreams = 256
	// pingAfter is the silence after which a connection with HTTP/2 is asked whether its
	// client is there, and the time that it has to answer.
	pingAfter = 30 * time.Second
)

// serve answers requests until the server is closed.
func (f *Frontend) serve() error {
	if f.cfg.TLS == nil {
		return f.srv.Serve(f.ln)
	}
	return f.srv.ServeTLS(f.ln, "", "")
}

// watch starts following workers and models, until release.
func (f *Frontend) watch(ctx context.Context) (err error) {
	component := cluster.RoleDecode.Component()
	if f.workers, err = runtime.NewClient(ctx, f.cfg.Runtime, component, cluster.EndpointGenerate); err != nil {
		return err
	}
	if f.files, err = runtime.NewClient(ctx, f.cfg.Runtime, component, cluster.EndpointModelFiles); err != nil {
		return err
	}
	if f.prefills, err = runtime.NewClient(ctx, f.cfg.Runtime, cluster.RolePrefill.Component(), cluster.EndpointGenerate); err != nil {
		return err
	}
	for _, role := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		c, err := runtime.NewClient(ctx, f.cfg.Runtime, role.Component(), cluster.EndpointClearKV)
		if err != nil {
			return err
		}
		f.clearing = append(f.clearing, c)
	}
	if f.caches, err = newCaches(ctx, f.cfg.Runtime, !f.cfg.NoKVEvents, f.cfg.KVTTL, f.cfg.Metrics, f.log); err != nil {
		return err
	}
	if err := f.watchReplicas(ctx); err != nil {
		return err
	}
	f.registry, err = newRegistry(ctx, f)
	return err
}

// advertised returns the host:port in the URL that other nodes get.
func (f *Frontend) advertised() string {
	host, port, _ := net.SplitHostPort(f.ln.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = f.cfg.AdvertiseHost
	}
	return net.JoinHostPort(host, port)
}

// URL is the base URL of the frontend, without a path.
func (f *Frontend) URL() string { return f.url }

// Run serves until ctx ends or Close is called. It then ends requests in flight with an
// error that their clients can read, and releases everything.
func (f *Frontend) Run(ctx context.Context) error {
	if !f.start() {
		return nil // closed before it ran
	}
	defer close(f.doneCh)
	defer f.release()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { f.registry.run(background) })
	wg.Go(func() { f.caches.run(background) })
	if f.replicas != nil {
		wg.Go(func() { f.replicas.Run(background) })
	}
	wg.Go(func() { f.publishStats(background) })
	served := make(chan error, 1)
	wg.Go(func() { served <- f.serve() })

	announcing, endAnnouncing := context.WithCancel(ctx)
	unannounced := make(chan error, 1) // the reason, if announcing fails for good
	wg.Go(func() {
		if err := f.announce(announcing); err != nil {
			unannounced <- err
		}
	})
	var err error
	select {
	case err = <-unannounced:
	case <-ctx.Done():
	case <-f.stopCh:
	case err = <-served:
	}
	endAnnouncing()
	f.withdraw(context.WithoutCancel(ctx))
	f.endRequests()
	stop()
	wg.Wait()
	return err
}

// start reports whether Run may run.
func (f *Frontend) start() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.started
	f.started = true
	return first
}

// endRequests refuses new requests, ends those in flight and closes the server.
func (f *Frontend) endRequests() {
	idle := f.gate.close()
	f.cancel(errStopping)
	ended := func() bool {
		select {
		case <-idle:
			return true
		case <-time.After(f.limits.stop):
			return false
		}
	}
	quick := ended()
	// The last bytes of the answers are still to be written.
	ctx, cancel := context.WithTimeout(context.Background(), lastBytes)
	defer cancel()
	if f.srv.Shutdown(ctx) != nil {
		_ = f.srv.Close() // cuts off clients that do not read, or never asked anything
	}
	if !quick && !ended() {
		f.log.Error("requests still running after they were cancelled", "requests", f.gate.inFlight(), "waited", 2*f.limits.stop)
	}
}

// lastBytes bounds how long answers may take to leave when the server closes.
const lastBytes = 250 * time.Millisecond

// Drain leaves discovery, refuses new requests and waits for those in flight until
// ctx ends.
func (f *Frontend) Drain(ctx context.Context) error {
	f.withdraw(ctx)
	idle := f.gate.close()
	f.srv.SetKeepAlivesEnabled(false) // clients look for another frontend
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests in flight: %w", f.gate.inFlight(), context.Cause(ctx))
	}
}

// Close ends Run, if it runs, and returns when everything is released.
func (f *Frontend) Close() {
	if f.start() { // Run never came
		defer close(f.doneCh)
		f.release()
		return
	}
	f.mu.Lock()
	first := !f.closing
	f.closing = true
	f.mu.Unlock()
	if first {
		close(f.stopCh)
	}
	<-f.doneCh
}

// release closes what New opened.
func (f *Frontend) release() {
	f.cancel(errStopping)
	_ = f.ln.Close() // may be closed by the server already
	if f.registry != nil {
		f.registry.close()
	}
	if f.files != nil {
		f.files.Close()
	}
	if f.workers != nil {
		f.workers.Close()
	}
	if f.prefills != nil {
		f.prefills.Close()
	}
	for _, c := range f.clearing {
		c.Close()
	}
	if f.caches != nil {
		f.caches.close()
	}
	if f.replicas != nil {
		f.replicas.Close()
	}
}
