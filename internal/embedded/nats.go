package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	natsMaxPayload = 8 << 20
	natsReadyPoll  = 50 * time.Millisecond
	// natsSyncInterval is how much of the prefill queue a power cut may cost; a
	// killed process costs nothing.
	natsSyncInterval = 10 * time.Second
)

// NATSOptions configures an embedded NATS server.
type NATSOptions struct {
	Dir  string // JetStream's directory, created if missing
	Addr string // host:port for clients; port 0 means any free one
	Log  *slog.Logger
}

// NATS is a running NATS server with JetStream.
type NATS struct {
	server *server.Server
	url    string
	lock   *dirLock
	log    *slog.Logger
	fatal  chan error    // capacity 1: the server wanted to end the process
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed when the server has stopped, for whatever reason
	once   sync.Once
	closed error // of Close
	err    error // why it stopped by itself; set before done is closed
}

// StartNATS starts a NATS server and returns when it is ready to serve.
func StartNATS(ctx context.Context, opts NATSOptions) (*NATS, error) {
	lock, err := prepareDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	if err := lock.acquire(ctx); err != nil {
		lock.release()
		return nil, fmt.Errorf("start nats: %w", err)
	}
	for attempt := 1; ; attempt++ {
		n, err := startNATS(ctx, opts, lock)
		if err == nil {
			return n, nil
		}
		if anyPort(opts.Addr) && errors.Is(err, ErrPortInUse) && attempt < portAttempts {
			continue
		}
		lock.release()
		return nil, fmt.Errorf("start nats: %w", err)
	}
}

func startNATS(ctx context.Context, opts NATSOptions, lock *dirLock) (*NATS, error) {
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
	srv, err := server.NewServer(&server.Options{
		// JetStream files belong to a server name.
		ServerName:             "dynamod",
		Host:                   host,
		Port:                   port,
		JetStream:              true,
		StoreDir:               opts.Dir,
		SyncInterval:           natsSyncInterval,
		MaxPayload:             natsMaxPayload,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, fmt.Errorf("configure server: %w", err)
	}
	n := &NATS{
		server: srv,
		url:    "nats://" + dialable(addr),
		lock:   lock,
		log:    opts.Log,
		fatal:  make(chan error, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	srv.SetLoggerV2(&natsLogger{log: opts.Log, fatal: n.fatal}, false, false, false)
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
			return fmt.Errorf("%w: %s: %w", ErrData, n.server.StoreDir(), err)
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

// watch notices when the server stops by itself.
func (n *NATS) watch() {
	defer close(n.done)
	down := make(chan struct{})
	go func() {
		defer close(down)
		n.server.WaitForShutdown() // also after Close, which waits for it
	}()
	select {
	case <-n.stop:
		n.server.Shutdown()
		<-down
		return
	case n.err = <-n.fatal:
	case <-down:
		n.err = errors.New("nats server stopped")
	}
	n.log.Error("embedded nats failed", "err", n.err)
	n.server.Shutdown()
	<-down
}

// URL returns what clients on this machine connect to, nats://host:port.
func (n *NATS) URL() string { return n.url }

// Done is closed when the server has stopped, by Close or by itself.
func (n *NATS) Done() <-chan struct{} { return n.done }

// Err returns why the server stopped by itself, once Done is closed; it is nil
// after Close.
func (n *NATS) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Close stops the server and gives its directory and port back. It may be
// called more than once.
func (n *NATS) Close() error {
	n.once.Do(func() {
		close(n.stop)
		select {
		case <-n.done:
		case <-time.After(closeTimeout):
			n.closed = fmt.Errorf("close nats: not stopped after %s", closeTimeout)
		}
		n.lock.release()
	})
	return n.closed
}

// natsLogger passes warnings and worse on.
type natsLogger struct {
	log   *slog.Logger
	fatal chan<- error
}

// Noticef drops the server's account of its own start.
func (l *natsLogger) Noticef(string, ...any) {}

// Warnf logs a warning.
func (l *natsLogger) Warnf(format string, v ...any) {
	l.log.Warn("embedded nats warns", "text", fmt.Sprintf(format, v...))
}

// Errorf logs an error.
func (l *natsLogger) Errorf(format string, v ...any) {
	l.log.Error("embedded nats reports an error", "error", fmt.Sprintf(format, v...))
}

// Fatalf reports that the server cannot go on; nobody's process ends.
func (l *natsLogger) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Errorf(format, v...):
	default:
	}
}

// Debugf drops debug output.
func (l *natsLogger) Debugf(string, ...any) {}

// Tracef drops protocol traces.
func (l *natsLogger) Tracef(string, ...any) {}
