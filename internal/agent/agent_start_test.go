package agent

import (
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// taken is a port that somebody else listens on.
func taken(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// A node that cannot come up says why and leaves nothing: it can be started again
// at once.
func TestStartFails(t *testing.T) {
	x := startExternal(t)
	before := goleak.IgnoreCurrent()
	port := func(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }
	for _, tc := range []struct {
		name  string
		setup func(t *testing.T, cfg *config.Dynamod) (want []string)
	}{
		{"state directory taken", func(t *testing.T, cfg *config.Dynamod) []string {
			c, _ := statedir.Open(cfg.StateDir, cfg.Cluster)
			dir, _ := c.Node(cfg.Node.Name)
			if err := dir.Create(); err != nil {
				t.Fatal(err)
			}
			lock, err := dir.Lock()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Release() })
			return []string{"node-1 of cluster test is running already", "process "}
		}},
		{"state directory below a file", func(t *testing.T, cfg *config.Dynamod) []string {
			cfg.StateDir = dirOfAFile(t)
			return []string{"create state directory"}
		}},
		{"frontend port in use", func(t *testing.T, cfg *config.Dynamod) []string {
			ln := taken(t)
			cfg.Frontend.Enabled, cfg.Frontend.Port = true, port(ln)
			return []string{"frontend " + ln.Addr().String()}
		}},
		{"status port in use", func(t *testing.T, cfg *config.Dynamod) []string {
			cfg.Status.Listen = taken(t).Addr().String()
			return []string{"status server", cfg.Status.Listen}
		}},
		{"request plane port in use", func(t *testing.T, cfg *config.Dynamod) []string {
			cfg.RequestPlane.Listen = taken(t).Addr().String()
			return []string{"request plane", cfg.RequestPlane.Listen}
		}},
		{"more devices than cores", func(t *testing.T, cfg *config.Dynamod) []string {
			cfg.CPU.Devices, cfg.CPU.Cores = 3, 2
			return []string{"3 devices", "there are 2"}
		}},
		{"etcd not reachable", func(t *testing.T, cfg *config.Dynamod) []string {
			ln := taken(t)
			cfg.Etcd.Endpoints = []string{ln.Addr().String()}
			_ = ln.Close()
			return []string{"reach etcd", ln.Addr().String()}
		}},
		{"chosen etcd port in use", func(t *testing.T, cfg *config.Dynamod) []string {
			cfg.Etcd.Endpoints, cfg.Etcd.Listen = nil, taken(t).Addr().String()
			return []string{"start embedded etcd", cfg.Etcd.Listen, "port in use"}
		}},
		{"chosen NATS port in use", func(t *testing.T, cfg *config.Dynamod) []string {
			cfg.NATS.URL, cfg.NATS.Listen = "", taken(t).Addr().String()
			return []string{"start embedded NATS", cfg.NATS.Listen, "port in use"}
		}},
		{"etcd's data directory is a file", func(t *testing.T, cfg *config.Dynamod) []string {
			c, _ := statedir.Open(cfg.StateDir, cfg.Cluster)
			dir, _ := c.Node(cfg.Node.Name)
			if err := dir.Create(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir.EtcdDir(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cfg.Etcd.Endpoints = nil
			return []string{"start embedded etcd", "data directory not usable"}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := x.config()
			want := tc.setup(t, &cfg)
			_, err := tryAgent(t, cfg)
			if err == nil {
				t.Fatal("it came up")
			}
			for _, w := range want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %q", err, w)
				}
			}
			if c, _ := statedir.Open(cfg.StateDir, cfg.Cluster); tc.name != "state directory taken" {
				if nodes, err := c.Nodes(); err == nil && len(nodes) != 0 {
					t.Errorf("locks are left: %v", nodes)
				}
			}
			goleak.VerifyNone(t, append(natsLeaks(), before)...)
		})
	}
	if leases, err := x.store.Leases(t.Context()); err != nil || len(leases) != 0 {
		t.Errorf("leases are left: %v %v", leases, err)
	}
}

// The default ports of the embedded servers are only a wish: a second cluster on
// the machine needs no configuration.
func TestDefaultPortsTaken(t *testing.T) {
	for _, addr := range []string{config.DefaultEtcdListen, config.DefaultNATSListen} {
		if ln, err := net.Listen("tcp", addr); err == nil { // else somebody has it already
			defer ln.Close()
		}
	}
	cfg := testConfig(t)
	cfg.Frontend.Enabled = false
	cfg.Etcd.Listen, cfg.NATS.Listen = config.DefaultEtcdListen, config.DefaultNATSListen
	a := startAgent(t, cfg)
	if e := a.stores.etcd.Endpoint(); e == config.DefaultEtcdListen || !strings.HasPrefix(e, "127.0.0.1:") {
		t.Errorf("etcd is at %s", e)
	}
	if u := a.stores.nats.URL(); strings.HasSuffix(u, config.DefaultNATSListen) {
		t.Errorf("NATS is at %s", u)
	}
	if e, err := a.cluster.Endpoints(); err != nil || e.Etcd[0] != config.SchemeDynamod+a.stores.etcd.Endpoint() || e.NATS != config.SchemeDynamod+a.stores.nats.Addr() || e.Host != "" {
		t.Errorf("cluster.json: %+v %v", e, err)
	}
}
