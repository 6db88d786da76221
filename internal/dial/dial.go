// Package dial connects to stores and NATS as the configuration says. It is the only place
// that turns these settings into connections, and dynamod and dynctl share it.
//
// [Store], [Etcd] and [NATS] return connections that the caller closes.
package dial

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/store"
)

// Identity is a program's proof to servers inside a dynamod. It is not sent to other
// servers.
type Identity struct {
	User   string // in the common name of its certificate, such as "dynctl"
	Secret credentials.Secret
	// Certs lists what follows the files of certificates for other servers; nil for no list.
	Certs *certs.Followers
}

// ErrNoSecret is returned for servers inside a dynamod when this machine lacks their
// cluster's secret.
var ErrNoSecret = errors.New("it runs inside a dynamod, which requires the cluster's secret, and this machine has none")

// tls returns the settings of connections to servers inside a dynamod.
func (id Identity) tls() (func() *tls.Config, error) {
	if id.Secret.IsZero() {
		return nil, ErrNoSecret
	}
	cfg, err := id.Secret.ClientTLS(id.User)
	return func() *tls.Config { return cfg }, err
}

// files returns the settings of connections to other servers, if TLS is wanted.
func (id Identity) files(wanted bool, files config.TLSFiles, log *slog.Logger) (func() *tls.Config, error) {
	if !wanted {
		return nil, nil
	}
	f, err := id.Certs.Follow(files, log)
	if err != nil {
		return nil, err
	}
	return f.TLS, nil
}

// Stores says how each kind of store is reached.
type Stores struct {
	Etcd       config.EtcdClient
	NATS       config.NATSClient
	Kubernetes config.Kubernetes
	Agent      bool // the caller is a node, whose own lease is the first one
}

// Store returns the store at the given addresses, or etcd at the configured ones if there are
// none. An address is that of an etcd server, a directory as file:///DIR, a bucket of the
// given NATS as bucket://NAME, or kubernetes:// with anything. The caller closes it.
func Store(c Stores, addrs []string, id Identity, log *slog.Logger) (store.Store, error) {
	switch d, etcd := config.DiscoveryAt(addrs); {
	case d.InFiles():
		return store.NewFile(store.FileConfig{Dir: d.Dir}, log)
	case d.InKubernetes():
		return kubernetes(c.Kubernetes, c.Agent, log)
	case d.InNATS():
		return inNATS(c.NATS, d.Bucket, id, log)
	default:
		return Etcd(c.Etcd, etcd, id, log)
	}
}

func inNATS(n config.NATSClient, bucket string, id Identity, log *slog.Logger) (store.Store, error) {
	if n.URL == "" {
		return nil, errors.New("open the store in NATS: no server is configured")
	}
	cfg, err := natsConfig(n, id.User, id, log)
	if err != nil {
		return nil, fmt.Errorf("open the store in NATS at %s: %w", n.URL, err)
	}
	return store.NewNATS(store.NATSConfig{Config: cfg, Bucket: bucket}, log)
}

// Servers returns the addresses of the servers behind those of a store: those of NATS if it
// is a bucket, none if it is a directory or the Kubernetes API.
func Servers(addrs []string, natsURL string) []string {
	d, etcd := config.DiscoveryAt(addrs)
	if d.InNATS() {
		return strings.Split(natsURL, ",")
	}
	return etcd
}

// Etcd returns a store on the given endpoints, or on the configured ones if there are
// none. The caller closes it.
func Etcd(c config.EtcdClient, endpoints []string, id Identity, log *slog.Logger) (*store.Etcd, error) {
	if len(endpoints) > 0 {
		c.Endpoints = endpoints
	}
	cfg := store.EtcdConfig{Endpoints: c.Endpoints, Username: c.Username, Password: string(c.Password)}
	var err error
	if c.InDynamod() {
		cfg = store.EtcdConfig{Endpoints: each(c.Endpoints, "https://")}
		cfg.TLS, err = id.tls()
	} else {
		cfg.TLS, err = id.files(c.WantsTLS(), c.TLSFiles(), log)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(c.Endpoints, ","), err)
	}
	s, err := store.NewEtcd(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return s, nil
}

// NATS returns a bus on url, or on the configured one if url is empty. It connects in the
// background. name identifies the connection at the server. The caller closes the bus.
func NATS(c config.NATSClient, url, name string, id Identity, log *slog.Logger) (*events.NATS, error) {
	if url != "" {
		c.URL = url
	}
	if c.URL == "" { // the library would otherwise use its own default
		return nil, errors.New("connect to NATS: no server is configured")
	}
	cfg, err := natsConfig(c, name, id, log)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", c.URL, err)
	}
	bus, err := events.NewNATS(events.Config{Config: cfg}, log)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return bus, nil
}

// natsConfig returns how to connect to NATS under a name.
func natsConfig(c config.NATSClient, name string, id Identity, log *slog.Logger) (cfg natsconn.Config, err error) {
	if c.InDynamod() {
		cfg = natsconn.Config{URL: strings.Join(each(strings.Split(c.URL, ","), "tls://"), ","), TLSFirst: true, Name: name}
		cfg.TLS, err = id.tls()
		return cfg, err
	}
	cfg = natsconn.Config{
		URL: c.URL, User: c.Username, Password: string(c.Password), Token: string(c.Token),
		NKey: string(c.NKey), CredentialsFile: c.CredsFile, Name: name,
	}
	cfg.TLS, err = id.files(c.WantsTLS(), c.TLSFiles(), log)
	return cfg, err
}

// each returns the addresses with scheme in place of config.SchemeDynamod, which the
// libraries do not know.
func each(addrs []string, scheme string) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = scheme + strings.TrimPrefix(strings.TrimSpace(a), config.SchemeDynamod)
	}
	return out
}
