package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/natsconn"
)

// DefaultBucket is the default of [NATSConfig.Bucket].
const DefaultBucket = "dynctl"

// NATSConfig says where a [NATS] store is.
type NATSConfig struct {
	natsconn.Config
	// Bucket names the key-value bucket that holds the store, and nothing else. It is made
	// if it is missing. Default [DefaultBucket].
	Bucket  string
	Timeout time.Duration // of one call; default [DefaultTimeout]
}

// NATS is a [Store] in a key-value bucket of NATS JetStream. DESIGN.md says how it works and
// what it guarantees.
type NATS struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	stream  string // of the bucket
	prefix  string // of its subjects
	name    string // of the servers, as shown in errors
	timeout time.Duration
	logger  *slog.Logger
	life    *lifetime
	health  *health
	online  chan struct{} // capacity 1: connected
	check   chan struct{} // capacity 1: the monitor shall look
	closed  chan struct{} // by the client library
	turn    chan struct{} // capacity 1: held by the transaction under way
	pulling chan struct{} // capacity 1: held by whoever reads from the stream's leader

	mu       sync.Mutex // guards what follows
	state    replica
	applied  natsPlace
	session  *natsSession                     // that reads the stream; nil when none does
	sessions uint64                           // begun
	verified uint64                           // on which connection the stream was seen to be the same: its reconnects and one
	moved    chan struct{}                    // closed when applied or session changes, and replaced
	dead     map[string]tomb                  // by subject: what is to be purged
	purged   time.Duration                    // on the replica's clock
	reason   error                            // why there is no session, or no connection
	end      context.CancelCauseFunc          // of the session, once it has begun
	grants   map[cluster.InstanceID]Revision  // of leases: the message that granted each
	held     map[cluster.InstanceID]time.Time // leases that this process renewed: until when they are safe
}

var _ Store = (*NATS)(nil)

// natsPlace names one message: the last that was applied.
type natsPlace struct {
	seq Revision
	at  time.Time
}

var natsBucketRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// NewNATS returns a store that connects in the background, now and after every disconnect.
// It fails only for a configuration that can never work.
func NewNATS(cfg NATSConfig, log *slog.Logger) (*NATS, error) {
	return newNATS(cfg, log, (*NATS).follow, (*NATS).monitor)
}

// newNATS runs loops until Close.
func newNATS(cfg NATSConfig, log *slog.Logger, loops ...func(*NATS, context.Context)) (*NATS, error) {
	if cfg.Bucket == "" {
		cfg.Bucket = DefaultBucket
	}
	if !natsBucketRule.MatchString(cfg.Bucket) {
		return nil, fmt.Errorf("open the store in NATS: bucket %q: use up to 64 letters, digits, - and _", cfg.Bucket)
	}
	opts, err := cfg.Options()
	if err != nil {
		return nil, fmt.Errorf("open the store in NATS: %w", err)
	}
	n := &NATS{
		stream:  "KV_" + cfg.Bucket,
		prefix:  "$KV." + cfg.Bucket + ".",
		name:    cfg.URL,
		timeout: withDefault(cfg.Timeout, DefaultTimeout),
		logger:  log,
		life:    newLifetime(),
		health:  newHealth(),
		online:  make(chan struct{}, 1),
		check:   make(chan struct{}, 1),
		closed:  make(chan struct{}),
		turn:    make(chan struct{}, 1),
		pulling: make(chan struct{}, 1),
		state:   newReplica(),
		moved:   make(chan struct{}),
		dead:    map[string]tomb{},
		reason:  errors.New("not connected yet"),
		grants:  map[cluster.InstanceID]Revision{},
		held:    map[cluster.InstanceID]time.Time{},
	}
	opts = append(opts,
		nats.ConnectHandler(func(*nats.Conn) { n.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { n.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.unreachable(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			n.unreachable(err)
			log.Debug("nats error", "err", err)
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(n.closed) }),
	)
	if n.nc, err = nats.Connect(cfg.URL, opts...); err != nil {
		return nil, fmt.Errorf("open the store in NATS at %s: %w", cfg.URL, err)
	}
	if n.js, err = jetstream.New(n.nc); err != nil { // options that do not exist
		n.nc.Close()
		return nil, fmt.Errorf("open the store in NATS at %s: %w", cfg.URL, err)
	}
	for _, run := range loops {
		finished, err := n.life.begin()
		if err != nil { // it is not closed yet
			return nil, err
		}
		go func() {
			defer finished()
			run(n, n.life.ctx)
		}()
	}
	return n, nil
}

// signal fills a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Get implements [Store].
func (n *NATS) Get(ctx context.Context, key string) (KV, error) {
	return readNATS(ctx, n, "get", key, func() (KV, error) {
		kv, ok := n.state.data[key]
		if !ok {
			return KV{}, ErrNotFound
		}
		return kv, nil
	})
}

// List implements [Store].
func (n *NATS) List(ctx context.Context, prefix string) ([]KV, Revision, error) {
	l, err := readNATS(ctx, n, "list", prefix, func() (listed, error) {
		return listed{n.state.list(prefix), n.state.rev}, nil
	})
	return l.kvs, l.rev, err
}

// Newest implements [Store].
func (n *NATS) Newest(ctx context.Context, prefix string) (Revision, error) {
	return readNATS(ctx, n, "find the newest of", prefix, func() (Revision, error) { return n.state.newest(prefix), nil })
}

// Watch implements [Store].
func (n *NATS) Watch(ctx context.Context, prefix string) (*Watcher, error) {
	watching, cancel := context.WithCancel(ctx)
	w, err := readNATS(ctx, n, "watch", prefix, func() (*Watcher, error) {
		// Whoever reads the stream pushes changes, so the source only unregisters.
		w, err := newWatcher(watching, n.life, n.state.list(prefix), n.state.rev, n.health.trouble, func(ctx context.Context, w *Watcher) {
			<-ctx.Done()
			cancel()
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.state.watchers, w)
		})
		if err == nil {
			n.state.watchers[w] = prefix
		}
		return w, err
	})
	if err != nil {
		cancel()
	}
	return w, err
}

// Ping implements [Store].
func (n *NATS) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	_, err := readNATS(ctx, n, "ping", "", func() (struct{}, error) { return struct{}{}, nil })
	return time.Since(start), err
}

// readNATS returns what read finds in a state that has all that was written before.
func readNATS[T any](ctx context.Context, n *NATS, verb, subject string, read func() (T, error)) (T, error) {
	return doNATS(ctx, n, verb, subject, func(ctx context.Context) (T, error) {
		if err := n.catchUp(ctx); err != nil {
			var none T
			return none, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		return read()
	})
}

// WhileAnswering implements [Store].
func (n *NATS) WhileAnswering(ctx context.Context) (context.Context, context.CancelFunc) {
	return n.health.whileAnswering(ctx)
}

// Close implements [Store].
func (n *NATS) Close() error {
	if !n.life.close() {
		return nil
	}
	n.health.stop()
	n.nc.Close()
	<-n.closed
	return nil
}
