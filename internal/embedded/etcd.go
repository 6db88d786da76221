package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

const (
	defaultTickMS     = 20
	defaultElectionMS = 200
	// etcdQuota is the size at which etcd stops accepting writes. A cluster's state takes
	// a few megabytes, so reaching the quota means that something else is wrong.
	etcdQuota = 2 << 30
	// etcdSnapshotCount keeps the log short that a restart replays.
	etcdSnapshotCount = 5000
	etcdRequestBytes  = 4 << 20
	etcdSlow          = time.Second
	minBcryptCost     = 4
	// closeTimeout limits Close. A server that has not stopped by then is abandoned.
	closeTimeout = 10 * time.Second
	// failedTimeout limits the Close of a server that failed. Such a server rarely stops:
	// the goroutine that failed still holds its locks.
	failedTimeout = 2 * time.Second
	// portAttempts is the number of free ports to try when other processes take them
	// first.
	portAttempts = 5
)

// EtcdOptions configures an embedded etcd server.
type EtcdOptions struct {
	Dir        string // data directory, created if missing
	ClientAddr string // host:port for clients; port 0 means any free one
	// PeerAddr is host:port for other members, although there are none; default any free
	// port on loopback.
	PeerAddr string
	// Credentials restrict both addresses to clients with a certificate. Nil leaves them
	// open to all, without TLS; for tests only.
	Credentials *Credentials
	Log         *slog.Logger
	// UnsafeNoFsync skips flushing to disk and hashes passwords cheaply. For tests
	// only: a power cut loses data.
	UnsafeNoFsync bool
	// TickMS and ElectionMS are raft's heartbeat and election timeout. A single member
	// waits for them only at its start. The shortest lease is one and a half election
	// timeouts, rounded up to a second.
	TickMS, ElectionMS uint
}

// Etcd is a running etcd server with a single member.
type Etcd struct {
	*life
	server   *embed.Etcd
	listen   string
	endpoint string
	grpc     atomic.Pointer[grpc.Server]
	tidied   chan struct{} // closed when tidy has returned
}

// StartEtcd starts an etcd server and returns when it is ready to serve.
func StartEtcd(ctx context.Context, opts EtcdOptions) (*Etcd, error) {
	free := anyPort(opts.ClientAddr) || anyPort(opts.peerAddr())
	return start(ctx, "etcd", opts.Dir, opts.Log, free, func(l *life) (*Etcd, error) { return startEtcd(ctx, opts, l) })
}

func (o EtcdOptions) peerAddr() string { return cmp.Or(o.PeerAddr, "127.0.0.1:0") }

func startEtcd(ctx context.Context, opts EtcdOptions, l *life) (*Etcd, error) {
	e := &Etcd{life: l}
	cfg, err := e.configure(opts)
	if err != nil {
		return nil, err
	}
	// A failure in etcd can end the goroutine that called it, or block it behind another
	// one. So etcd starts on a goroutine of its own.
	type result struct {
		server *embed.Etcd
		err    error
	}
	started := make(chan result, 1)
	go func() {
		server, err := embed.StartEtcd(cfg)
		started <- result{server, err}
	}()
	select {
	case r := <-started:
		if r.err != nil {
			return nil, etcdStartError(cfg, r.err)
		}
		e.server = r.server
	case err := <-e.fatal:
		return nil, errors.Join(dataError(opts.Dir, err), fence(e.dir, e.lock)) // the server hangs
	case <-ctx.Done():
		go func() { // the start cannot be interrupted
			if r := <-started; r.server != nil {
				r.server.Close()
			}
		}()
		return nil, fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
	}
	go e.watch()
	select {
	case <-e.server.Server.ReadyNotify():
		e.tidied = make(chan struct{})
		go e.tidy()
		return e, nil
	case <-e.done:
		_ = e.shutdown()
		return nil, dataError(opts.Dir, e.err)
	case <-ctx.Done():
		_ = e.shutdown()
		return nil, fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
	}
}

func (e *Etcd) configure(opts EtcdOptions) (*embed.Config, error) {
	claimed, err := claim(opts.ClientAddr, opts.peerAddr())
	if err != nil {
		return nil, err
	}
	client, peer := claimed[0], claimed[1]
	e.listen, e.endpoint = client, dialable(client)

	cfg := embed.NewConfig()
	cfg.Name = "dynamod"
	cfg.Dir = opts.Dir
	scheme := "http"
	if opts.Credentials != nil {
		scheme = "https"
		info := &cfg.ClientTLSInfo
		if info.TrustedCAFile, info.CertFile, info.KeyFile, err = opts.Credentials.keep(filepath.Join(opts.Dir, "tls")); err != nil {
			return nil, err
		}
		info.ClientCertAuth = true
		// A single member needs no peer address, but it is open, so it requires
		// certificates, too.
		cfg.PeerTLSInfo, cfg.TlsMinVersion = *info, "TLS1.3"
	}
	cfg.ListenClientUrls = []url.URL{{Scheme: scheme, Host: client}}
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: scheme, Host: e.endpoint}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: peer}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: scheme, Host: dialable(peer)}}
	// etcd reads this only for a new directory. An existing member keeps its identity,
	// even with other ports.
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.InitialClusterToken = "dynamod"
	cfg.TickMs, cfg.ElectionMs = defaultTickMS, defaultElectionMS
	if opts.TickMS > 0 {
		cfg.TickMs = opts.TickMS
	}
	if opts.ElectionMS > 0 {
		cfg.ElectionMs = opts.ElectionMS
	}
	if opts.UnsafeNoFsync {
		cfg.UnsafeNoFsync = true
		cfg.BcryptCost = minBcryptCost
	}
	cfg.AutoCompactionMode = embed.CompactorModeRevision
	cfg.AutoCompactionRetention = etcdRevisions
	cfg.QuotaBackendBytes = etcdQuota
	cfg.SnapshotCount = etcdSnapshotCount
	cfg.MaxRequestBytes = etcdRequestBytes
	cfg.WarningApplyDuration = etcdSlow
	cfg.WarningUnaryRequestDuration = etcdSlow
	cfg.EnableGRPCGateway = false
	cfg.ServiceRegister = func(s *grpc.Server) { e.grpc.Store(s) }
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZapLogger(opts.Log, e.closing, e.fail, e.turnAway))
	return cfg, nil
}

func etcdStartError(cfg *embed.Config, err error) error {
	for _, addr := range []string{cfg.ListenClientUrls[0].Host, cfg.ListenPeerUrls[0].Host} {
		if mapped := listenError(addr, err); errors.Is(mapped, ErrPortInUse) {
			return mapped
		}
	}
	return dataError(cfg.Dir, err)
}

// watch notices when the server stops by itself, for example because it cannot write.
// etcd writes its file by system calls and maps only written parts, for reading. A full
// disk is therefore an error, and never a signal that ends the process.
func (e *Etcd) watch() {
	defer close(e.done)
	select {
	case <-e.stop:
		return
	case e.err = <-e.fatal:
	case err, ok := <-e.server.Err():
		if ok {
			e.err = err
		}
	case <-e.server.Server.StopNotify():
	}
	if e.err == nil {
		e.err = errors.New("etcd server stopped")
	}
	e.log.Error("embedded etcd failed", "err", e.err)
}

// Endpoint returns the host:port for clients on this machine.
func (e *Etcd) Endpoint() string { return e.endpoint }

// Listen returns the host:port that the server listens on. The host may mean every
// interface.
func (e *Etcd) Listen() string { return e.listen }

// Close stops the server and releases its directory and port. It may be called more than
// once.
func (e *Etcd) Close() error { return e.close(e.shutdown) }

func (e *Etcd) shutdown() error {
	close(e.stop)
	<-e.done
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if e.tidied != nil {
			<-e.tidied
		}
		// The rest may hang when the server has failed, and its successor listens at the
		// same address.
		for _, l := range e.server.Clients {
			_ = l.Close()
		}
		if e.err != nil {
			hangUp(e.endpoint)
		}
		// Otherwise etcd waits seconds for watches and keep-alives to end by themselves,
		// which they never do.
		if s := e.grpc.Load(); s != nil {
			s.Stop()
		}
		e.server.Close()
	}()
	patience := closeTimeout
	if e.err != nil {
		patience = failedTimeout
	}
	select {
	case <-finished:
		return nil
	case <-time.After(patience):
	}
	if err := fence(e.dir, e.lock); err != nil {
		return fmt.Errorf("close etcd: not stopped after %s: %w", patience, err)
	}
	e.log.Warn("embedded etcd does not stop: closed its files, its memory stays allocated", "waited", patience)
	return nil
}
