package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	natsMaxPayload = 8 << 20
	natsReadyPoll  = 50 * time.Millisecond
	// natsTLSTimeout limits a client's TLS handshake.
	natsTLSTimeout = 10 * time.Second
	// natsSyncInterval is the age of the prefill queue's data that a power failure may
	// lose. A killed process loses nothing.
	natsSyncInterval = 10 * time.Second
	// natsMaxStore is JetStream's storage limit in bytes. It is set so high that only the
	// queue's own limits count. By default the server takes three quarters of the free
	// space at its start, which after a full disk is next to nothing.
	natsMaxStore = 1 << 40
	// natsCheckEvery is the interval at which JetStream's ability to write is checked.
	natsCheckEvery = time.Second
)

// NATSOptions configures an embedded NATS server.
type NATSOptions struct {
	Dir  string // JetStream's directory, created if missing
	Addr string // host:port for clients; port 0 means any free one
	// Credentials restrict the address to clients with a certificate. Nil leaves it open
	// to all, without TLS; for tests only.
	Credentials *Credentials
	// Durable has every message synced before it is acknowledged, so that a power failure
	// loses none.
	Durable bool
	Log     *slog.Logger
}

// NATS is a running NATS server with JetStream.
type NATS struct {
	*life
	server *server.Server
	listen string
}

// StartNATS starts a NATS server and returns when it is ready to serve.
func StartNATS(ctx context.Context, opts NATSOptions) (*NATS, error) {
	return start(ctx, "nats", opts.Dir, opts.Log, anyPort(opts.Addr), func(l *life) (*NATS, error) { return startNATS(ctx, opts, l) })
}

func startNATS(ctx context.Context, opts NATSOptions, l *life) (*NATS, error) {
	claimed, err := claim(opts.Addr)
	if err != nil {
		return nil, err
	}
	addr := claimed[0]
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, listenError(addr, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, listenError(addr, err)
	}
	options := &server.Options{
		// JetStream stores its files under the server's name.
		ServerName:             "dynamod",
		Host:                   host,
		Port:                   port,
		JetStream:              true,
		StoreDir:               opts.Dir,
		SyncInterval:           natsSyncInterval,
		SyncAlways:             opts.Durable,
		JetStreamMaxStore:      natsMaxStore,
		MaxPayload:             natsMaxPayload,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	}
	if opts.Credentials != nil {
		if options.TLSConfig, err = opts.Credentials.tls(); err != nil {
			return nil, err
		}
		// Without TLSHandshakeFirst, the server would send its greeting before TLS
		// begins.
		options.TLS, options.TLSVerify, options.TLSHandshakeFirst = true, true, true
		options.TLSTimeout = natsTLSTimeout.Seconds()
	}
	srv, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("configure server: %w", err)
	}
	n := &NATS{life: l, server: srv, listen: addr}
	srv.SetLoggerV2(&natsLogger{l}, false, false, false)
	srv.Start()
	if err := n.waitReady(ctx); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		if _, busy := claim(addr); errors.Is(busy, ErrPortInUse) {
			return nil, busy
		}
		return nil, err
	}
	go n.watch()
	return n, nil
}

// waitReady waits for the listener and for JetStream.
func (n *NATS) waitReady(ctx context.Context) error {
	for {
		select {
		case err := <-n.fatal:
			return dataError(n.server.StoreDir(), err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
		default:
		}
		if n.server.ReadyForConnections(natsReadyPoll) {
			if !n.server.JetStreamEnabled() {
				return fmt.Errorf("%w: %s: JetStream is off", ErrData, n.server.StoreDir())
			}
			return nil
		}
	}
}

// watch notices when the server stops by itself or can no longer write. After one failed
// write, for example on a full disk, a stream refuses all messages until the server
// restarts. Events still pass meanwhile, so watch gives the server up only once there is
// space again.
func (n *NATS) watch() {
	defer close(n.done)
	down := make(chan struct{})
	go func() {
		defer close(down)
		n.server.WaitForShutdown() // also after Close, which waits for watch
	}()
	check := time.NewTicker(natsCheckEvery)
	defer check.Stop()
	told := ""
	for n.err == nil {
		select {
		case <-n.stop:
			n.server.Shutdown()
			<-down
			return
		case n.err = <-n.fatal:
		case <-down:
			n.err = errors.New("nats server stopped")
		case <-check.C:
			why := n.broken()
			switch {
			case why == "":
			case hasRoom(n.dir) == nil:
				n.err = errors.New(why)
			case why != told:
				n.log.Error("embedded nats stopped storing: it restarts when the disk has room", "err", why)
			}
			told = why
		}
	}
	n.log.Error("embedded nats failed", "err", n.err)
	n.server.Shutdown()
	<-down
}

// broken returns the reason why JetStream no longer stores messages, or "".
func (n *NATS) broken() string {
	for _, e := range n.server.Healthz(&server.HealthzOptions{Details: true}).Errors {
		// Other errors of a stream come from its recovery at the start. Another start
		// would not mend them, so they do not count.
		if e.Type == server.HealthzErrorJetStream || e.Type == server.HealthzErrorStream && strings.Contains(e.Error, "write error") {
			return e.Error
		}
	}
	return ""
}

// Addr returns the host:port for clients on this machine.
func (n *NATS) Addr() string { return dialable(n.listen) }

// Messages returns how many messages the server has received from clients and delivered
// to them since its start. One message to several subscribers is delivered several times.
func (n *NATS) Messages() (in, out int64) {
	v, err := n.server.Varz(nil)
	if err != nil { // it never fails without options
		return 0, 0
	}
	return v.InMsgs, v.OutMsgs
}

// URL returns Addr as nats://host:port, for a server without credentials.
func (n *NATS) URL() string { return "nats://" + n.Addr() }

// Listen returns the host:port that the server listens on. The host may mean every
// interface.
func (n *NATS) Listen() string { return n.listen }

// Close stops the server and releases its directory and port. It may be called more than
// once.
func (n *NATS) Close() error { return n.close(n.shutdown) }

func (n *NATS) shutdown() error {
	close(n.stop)
	select {
	case <-n.done:
		return nil
	case <-time.After(closeTimeout):
		return fmt.Errorf("close nats: not stopped after %s", closeTimeout)
	}
}

// natsLogger passes on warnings and errors.
type natsLogger struct{ *life }

// Noticef drops the server's messages about its own start.
func (l *natsLogger) Noticef(string, ...any) {}

// Warnf logs a warning.
func (l *natsLogger) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, "not using \"TLS Handshake First\"") { // it is used on purpose
		return
	}
	l.log.Warn("embedded nats warns", "text", text)
}

// Errorf logs an error.
func (l *natsLogger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.Contains(text, "TLS handshake error") {
		l.turnAway(time.Now(), slog.String("text", text))
		return
	}
	l.log.Error("embedded nats reports an error", "error", text)
}

// Fatalf reports that the server cannot continue. It does not end the process.
func (l *natsLogger) Fatalf(format string, v ...any) {
	l.fail(fmt.Errorf(format, v...))
}

// Debugf drops debug output.
func (l *natsLogger) Debugf(string, ...any) {}

// Tracef drops protocol traces.
func (l *natsLogger) Tracef(string, ...any) {}
