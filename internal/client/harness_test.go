package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/store"
)

// servers are an etcd and a NATS of one test, which can be stopped and started.
type servers struct {
	t         *testing.T
	dir       string
	etcd      *embedded.Etcd
	nats      *embedded.NATS
	etcdAddr  string
	natsAddr  string
	namespace string
}

var quiet = slog.New(slog.DiscardHandler)

// shared is the etcd that tests without an outage use, each in a namespace of its own.
var shared struct {
	dir  string
	etcd *embedded.Etcd
	n    int
}

// testSecret is that of all clusters of these tests.
var testSecret struct {
	file string
	key  handshake.Key
}

func makeSecret(dir string) error {
	testSecret.file = filepath.Join(dir, "secret")
	s, err := credentials.Create(testSecret.file, credentials.New())
	testSecret.key = handshake.NewKey(s.Key(requestplane.KeyPurpose))
	return err
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "client-secret-")
	if err == nil {
		err = makeSecret(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	if shared.etcd != nil {
		_ = shared.etcd.Close()
		_ = os.RemoveAll(shared.dir)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startServers starts servers that end with the test.
func startServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{t: t, dir: t.TempDir(), etcdAddr: "127.0.0.1:0", natsAddr: "127.0.0.1:0", namespace: "lab"}
	s.startEtcd()
	s.startNATS()
	t.Cleanup(func() {
		s.stopNATS()
		s.stopEtcd()
	})
	return s
}

func (s *servers) startEtcd() {
	s.t.Helper()
	e, err := embedded.StartEtcd(s.t.Context(), embedded.EtcdOptions{Dir: filepath.Join(s.dir, "etcd"), ClientAddr: s.etcdAddr, Log: quiet, UnsafeNoFsync: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.etcd, s.etcdAddr = e, e.Endpoint()
}

func (s *servers) stopEtcd() {
	if s.etcd != nil {
		if err := s.etcd.Close(); err != nil {
			s.t.Error(err)
		}
		s.etcd = nil
	}
}

func (s *servers) startNATS() {
	s.t.Helper()
	n, err := embedded.StartNATS(s.t.Context(), embedded.NATSOptions{Dir: filepath.Join(s.dir, "nats"), Addr: s.natsAddr, Log: quiet})
	if err != nil {
		s.t.Fatal(err)
	}
	s.nats, s.natsAddr = n, strings.TrimPrefix(n.URL(), "nats://")
}

func (s *servers) stopNATS() {
	if s.nats != nil {
		if err := s.nats.Close(); err != nil {
			s.t.Error(err)
		}
		s.nats = nil
	}
}

// connect returns a connection to the servers.
func (s *servers) connect(change ...func(*config.Dynctl)) *Cluster {
	s.t.Helper()
	cfg := config.Dynctl{Cluster: "test", Namespace: s.namespace, StateDir: s.t.TempDir(), SecretFile: testSecret.file}
	cfg.Etcd.Endpoints = []string{s.etcdAddr}
	if s.nats != nil {
		cfg.NATS.URL = s.nats.URL()
	}
	for _, c := range change {
		c(&cfg)
	}
	c, err := Connect(s.t.Context(), cfg, quiet)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// lab returns a connection to an etcd without NATS, in a fresh namespace.
func lab(t *testing.T) *Cluster {
	t.Helper()
	if shared.etcd == nil {
		var err error
		if shared.dir, err = os.MkdirTemp("", "client-test-"); err != nil {
			t.Fatal(err)
		}
		opts := embedded.EtcdOptions{Dir: shared.dir, ClientAddr: "127.0.0.1:0", Log: quiet, UnsafeNoFsync: true}
		if shared.etcd, err = embedded.StartEtcd(context.Background(), opts); err != nil {
			t.Fatal(err)
		}
	}
	shared.n++
	s := &servers{t: t, etcdAddr: shared.etcd.Endpoint(), namespace: fmt.Sprint("lab", shared.n)}
	return s.connect()
}

// put writes a value, under a lease if there is one.
func put(t *testing.T, c *Cluster, key string, v any, lease cluster.InstanceID) {
	t.Helper()
	if _, err := store.PutJSON(t.Context(), c.store, key, v, store.WithLease(lease)); err != nil {
		t.Fatal(err)
	}
}

// grant returns a lease that nobody keeps alive.
func grant(t *testing.T, c *Cluster, ttl time.Duration) cluster.InstanceID {
	t.Helper()
	l, err := c.store.GrantLease(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.store.RevokeLease(context.WithoutCancel(t.Context()), l.ID) }) // tests share a store; some have revoked it
	return l.ID
}

// revision is that of the last change of a key.
func revision(t *testing.T, c *Cluster, key string) store.Revision {
	t.Helper()
	kv, err := c.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return kv.ModRevision
}
