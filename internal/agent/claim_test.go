package agent

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

// secretOf is the secret in the state directory of a configuration.
func secretOf(t *testing.T, cfg config.Dynamod) (credentials.Secret, string) {
	t.Helper()
	path := filepath.Join(cfg.StateDir, cfg.Cluster, "secret")
	s, err := credentials.Load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return s, path
}

// Nodes that share a store of their own choice share a secret, too, or do not start.
func TestNodesShareASecret(t *testing.T) {
	x := startExternal(t)
	own := func() config.Dynamod { // each with a secret of its own
		cfg := x.config()
		cfg.SecretFile = ""
		return cfg
	}
	one := own()
	a := startAgent(t, one)
	two := own()
	two.Node.Name = "node-2"
	_, err := tryAgent(t, two)
	if !errors.Is(err, errOtherSecret) || !strings.Contains(err.Error(), a.secret.Fingerprint()) || !strings.Contains(err.Error(), "dynamod --join TOKEN, or set secret_file") {
		t.Fatalf("a node with a secret of its own: %v", err)
	}
	if s, path := secretOf(t, two); !s.IsZero() {
		t.Errorf("the secret that it made is in the way of the right one, in %s", path)
	}
	// One that it did not make itself stays.
	if _, err := credentials.Create(filepath.Join(two.StateDir, two.Cluster, "secret"), credentials.New()); err != nil {
		t.Fatal(err)
	}
	if _, err := tryAgent(t, two); !errors.Is(err, errOtherSecret) {
		t.Fatalf("a node with another secret: %v", err)
	}
	if s, _ := secretOf(t, two); s.IsZero() {
		t.Error("the secret that somebody put there was removed")
	}
	_, two.SecretFile = secretOf(t, one)
	b := startAgent(t, two)
	// Another namespace is another deployment.
	other := own()
	other.Namespace, other.Node.Name = "other", "node-3"
	c := startAgent(t, other)
	for _, r := range []*run{a, b, c} {
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	// When no node has the old secret any more, it counts no more.
	fresh := own()
	fresh.Node.Name = "node-4"
	d := startAgent(t, fresh)
	now, _, err := store.GetJSON[claim](t.Context(), x.store, cluster.SecretKey(fresh.Namespace))
	if err != nil || now.Fingerprint != d.secret.Fingerprint() {
		t.Errorf("published: %+v %v, want %s", now, err, d.secret)
	}
	// Of two that claim at a time the one that lost sees it.
	if _, err := store.PutJSON(t.Context(), x.store, cluster.SecretKey(fresh.Namespace), claim{"0123456789abcdef"}); err != nil {
		t.Fatal(err)
	}
	if err := d.confirmSecret(t.Context()); !errors.Is(err, errOtherSecret) {
		t.Errorf("another node has claimed, too: %v", err)
	}
}

// The servers inside a dynamod answer nobody without the cluster's secret, and a node with
// it from elsewhere.
func TestEmbeddedServersAskForTheSecret(t *testing.T) {
	cfg := testConfig(t)
	cfg.Frontend.Enabled = false
	a := startAgent(t, cfg)
	etcd, nats := a.stores.etcd.Endpoint(), a.stores.nats.Addr()
	reaches := func(limit time.Duration, id dial.Identity, etcdAddr, natsURL string) (etcdErr error, connected bool) {
		t.Helper()
		s, err := dial.Etcd(config.EtcdClient{}, []string{etcdAddr}, id, testLog(t))
		if err != nil {
			return err, false
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, etcdErr = s.Get(ctx, "k")
		bus, err := dial.NATS(config.NATSClient{}, natsURL, "test", id, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		defer bus.Close()
		for end := time.Now().Add(limit); !bus.Connected() && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		return etcdErr, bus.Connected()
	}
	if err, connected := reaches(patience.Soon, dial.Identity{User: "test", Secret: a.secret}, config.SchemeDynamod+etcd, config.SchemeDynamod+nats); err != nil && !errors.Is(err, store.ErrNotFound) || !connected {
		t.Fatalf("with the secret: %v, NATS %v: what follows proves nothing", err, connected)
	}
	stranger := dial.Identity{User: "test", Secret: credentials.New()}
	for name, addrs := range map[string][2]string{"plain text": {etcd, "nats://" + nats}, "another secret": {config.SchemeDynamod + etcd, config.SchemeDynamod + nats}} {
		if err, connected := reaches(500*time.Millisecond, stranger, addrs[0], addrs[1]); err == nil || errors.Is(err, store.ErrNotFound) || connected {
			t.Errorf("%s: etcd answers %v, NATS %v", name, err, connected)
		}
	}
	if resp, err := http.Get("http://" + etcd + "/version"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("etcd tells its version to anybody")
		}
	}
	// A wrong way to ask is told as such.
	for addr, want := range map[string]string{etcd: "write dynamod://" + etcd, config.SchemeDynamod + etcd: ""} {
		err := dial.Diagnose(t.Context(), []string{addr}, dial.Identity{Secret: a.secret})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
		if err := dial.Diagnose(t.Context(), []string{addr}, stranger); err == nil || !strings.Contains(err.Error(), a.secret.Fingerprint()) {
			t.Errorf("%s with another secret: %v", addr, err)
		}
		if err := dial.Diagnose(t.Context(), []string{addr}, dial.Identity{}); !errors.Is(err, dial.ErrNoSecret) {
			t.Errorf("%s without a secret: %v", addr, err)
		}
	}

	two := testConfig(t)
	two.Node.Name, two.Frontend.Enabled = "node-2", false
	two.Etcd.Endpoints, two.NATS.URL = []string{config.SchemeDynamod + etcd}, config.SchemeDynamod+nats
	if _, err := tryAgent(t, two); !errors.Is(err, dial.ErrNoSecret) {
		t.Errorf("a node without a secret: %v", err)
	}
	if s, _ := secretOf(t, two); !s.IsZero() {
		t.Error("it made one, which nobody has")
	}
	c, err := statedir.Open(two.StateDir, two.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Join(credentials.Token{Namespace: cfg.Namespace, Etcd: two.Etcd.Endpoints, NATS: two.NATS.URL, Secret: a.secret}); err != nil {
		t.Fatal(err)
	}
	b := startAgent(t, two)
	patience.Until(t, "both nodes are known", func() bool {
		kvs, _, err := a.stores.store.List(t.Context(), cluster.NodePrefix)
		return err == nil && len(kvs) == 2
	})
	if b.stores.etcd != nil || b.stores.credentials != nil {
		t.Error("a node that joined has servers of its own")
	}
	if _, err := os.Stat(filepath.Join(b.dir.EtcdDir(), "tls")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has keys that it does not need: %v", err)
	}
}
