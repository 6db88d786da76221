package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// DefaultTimeout bounds every call whose context has no deadline.
	DefaultTimeout = 3 * time.Second
	// keepAliveProbe is the interval at which an idle connection is probed. etcd's server
	// closes connections that probe more often than every five seconds.
	keepAliveProbe = 10 * time.Second
)

// EtcdConfig holds the address and credentials of etcd.
type EtcdConfig struct {
	// Endpoints are host:port or URLs. It is enough that one of them answers.
	Endpoints []string
	Username  string // with Password; works together with TLS
	Password  string
	// TLS returns the settings of one new connection; nil means plain text.
	TLS     func() *tls.Config
	Timeout time.Duration // of one call; default [DefaultTimeout]
	// DialTimeout limits the login that NewEtcd performs when there is a user name;
	// default [DefaultTimeout].
	DialTimeout time.Duration
}

// Etcd is a [Store] in an etcd cluster.
type Etcd struct {
	client  *clientv3.Client
	keeping *keepAlives
	reads   pb.KVClient
	timeout time.Duration
	name    string // endpoints as shown in errors
	log     *slog.Logger
	life    *lifetime
	health  *health
	login   *login // nil without a user name
}

var _ Store = (*Etcd)(nil)

// NewEtcd returns a store on the given endpoints. It does not wait for a connection,
// except with a user name: then it logs in at once and fails on wrong credentials.
func NewEtcd(cfg EtcdConfig, log *slog.Logger) (*Etcd, error) {
	endpoints := make([]string, 0, len(cfg.Endpoints))
	for _, ep := range cfg.Endpoints {
		if ep = strings.TrimSpace(ep); ep != "" {
			endpoints = append(endpoints, ep)
		}
	}
	if len(endpoints) == 0 {
		return nil, errors.New("etcd: no endpoints")
	}
	if (cfg.Username == "") != (cfg.Password == "") {
		return nil, errors.New("etcd: user name and password go together")
	}
	e := &Etcd{
		timeout: withDefault(cfg.Timeout, DefaultTimeout),
		name:    displayEndpoints(endpoints),
		log:     log,
		life:    newLifetime(),
	}
	if cfg.Username != "" {
		e.login = newLogin(cfg.Username, cfg.Password, log)
	}
	options, secure := e.login.dialOptions(), (*tls.Config)(nil)
	if cfg.TLS != nil {
		secure = cfg.TLS() // says that there is TLS; the option below replaces it
		options = append(options, grpc.WithTransportCredentials(eachTLS{credentials.NewTLS(secure), cfg.TLS}))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  secure,
		DialKeepAliveTime:    keepAliveProbe,
		DialKeepAliveTimeout: DefaultTimeout,
		PermitWithoutStream:  true,
		Logger:               zap.NewNop(), // failures are returned and logged here
		// The default reconnect back-off grows to two minutes, longer than a lease lives.
		DialOptions: append(options, grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: DefaultTimeout,
		})),
	})
	if err != nil {
		return nil, e.explain(context.Background(), "connect", "", err)
	}
	if err := e.login.first(client.ActiveConnection(), withDefault(cfg.DialTimeout, DefaultTimeout)); err != nil {
		_ = client.Close()
		return nil, e.explain(context.Background(), "log in as", cfg.Username, err)
	}
	e.client = client
	e.keeping = newKeepAlives(pb.NewLeaseClient(client.ActiveConnection()), e.life)
	e.reads = pb.NewKVClient(client.ActiveConnection())
	e.health = newHealth()
	finished, err := e.life.begin()
	if err != nil {
		return nil, err
	}
	go func() {
		defer finished()
		e.monitor(e.life.ctx)
	}()
	return e, nil
}

// eachTLS asks for the settings of TLS at each connection, so that changed certificates are
// used.
type eachTLS struct {
	credentials.TransportCredentials
	settings func() *tls.Config
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c eachTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.settings()).ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (c eachTLS) Clone() credentials.TransportCredentials {
	return eachTLS{c.TransportCredentials.Clone(), c.settings}
}

func withDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

func displayEndpoints(endpoints []string) string {
	short := make([]string, len(endpoints))
	for i, ep := range endpoints {
		if _, rest, found := strings.Cut(ep, "://"); found {
			ep = rest
		}
		short[i] = ep
	}
	return strings.Join(short, ",")
}

// Client returns the underlying etcd client, which stays owned by the store.
func (e *Etcd) Client() *clientv3.Client { return e.client }

// do runs one call with the default timeout and explains its error.
func (e *Etcd) do(ctx context.Context, verb, subject string, call func(context.Context) error) error {
	if e.life.ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", verb, subject, ErrClosed)
	}
	cctx := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		cctx, cancel = context.WithTimeout(ctx, e.timeout)
		defer cancel()
	}
	return e.explain(ctx, verb, subject, call(cctx))
}

// Get implements [Store].
func (e *Etcd) Get(ctx context.Context, key string) (kv KV, err error) {
	err = e.do(ctx, "get", key, func(ctx context.Context) error {
		resp, err := e.client.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(resp.Kvs) == 0 {
			return ErrNotFound
		}
		kv = fromEtcd(resp.Kvs[0])
		return nil
	})
	return kv, err
}

// List implements [Store].
func (e *Etcd) List(ctx context.Context, prefix string) (kvs []KV, rev Revision, err error) {
	err = e.do(ctx, "list", prefix, func(ctx context.Context) error {
		resp, err := e.client.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		kvs = make([]KV, len(resp.Kvs))
		for i, kv := range resp.Kvs {
			kvs[i] = fromEtcd(kv)
		}
		rev = Revision(resp.Header.Revision)
		return nil
	})
	return kvs, rev, err
}

// Newest implements [Store].
func (e *Etcd) Newest(ctx context.Context, prefix string) (rev Revision, err error) {
	err = e.do(ctx, "find the newest of", prefix, func(ctx context.Context) error {
		resp, err := e.client.Get(ctx, prefix, append(clientv3.WithLastRev(), clientv3.WithKeysOnly())...)
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			rev = Revision(kv.ModRevision)
		}
		return nil
	})
	return rev, err
}

// Create implements [Store].
func (e *Etcd) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return e.putIf(ctx, "create", key, value, opts, ErrExists, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
}

// createUnless implements [exclusiveCreator] in one transaction.
func (e *Etcd) createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error) {
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	for _, blocker := range blockers {
		// The comparison covers all keys under the prefix. It holds if it holds for each
		// of them, so also if there are none.
		absent = append(absent, clientv3.Compare(clientv3.CreateRevision(blocker).WithPrefix(), "=", 0))
	}
	return e.putIf(ctx, "create", key, value, opts, ErrConflict, absent...)
}

// Put implements [Store].
func (e *Etcd) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return e.putIf(ctx, "put", key, value, opts, nil)
}

// CompareAndSwap implements [Store].
func (e *Etcd) CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error) {
	return e.putIf(ctx, "swap", key, value, opts, ErrConflict, clientv3.Compare(clientv3.ModRevision(key), "=", int64(expect)))
}

// putIf writes key when all conditions hold; otherwise the error is refused.
func (e *Etcd) putIf(ctx context.Context, verb, key string, value []byte, opts []PutOption, refused error, conditions ...clientv3.Cmp) (rev Revision, err error) {
	o := applyPutOptions(opts)
	put := clientv3.OpPut(key, string(value), clientv3.WithLease(clientv3.LeaseID(o.lease)))
	err = e.do(ctx, verb, key, func(ctx context.Context) error {
		resp, err := e.client.Txn(ctx).If(conditions...).Then(put).Commit()
		if err != nil {
			return err
		}
		if !resp.Succeeded {
			return refused
		}
		rev = Revision(resp.Header.Revision)
		return nil
	})
	return rev, err
}

// Delete implements [Store].
func (e *Etcd) Delete(ctx context.Context, key string) error {
	return e.do(ctx, "delete", key, func(ctx context.Context) error {
		_, err := e.client.Delete(ctx, key)
		return err
	})
}

// KeepLease implements [Store].
func (e *Etcd) KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	return keepLease(ctx, e.life, e, ttl, log)
}

// Close implements [Store].
func (e *Etcd) Close() error {
	if !e.life.close() {
		return nil
	}
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

func leaseID(id cluster.InstanceID) clientv3.LeaseID { return clientv3.LeaseID(id) }
