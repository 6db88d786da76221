package dynamod

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/statedir"
)

// A node joins with a token, once: from then on it needs none.
func TestJoin(t *testing.T) {
	first := t.TempDir()
	p, _ := node(t, first)
	c, err := statedir.Open(first, "local")
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := credentials.Load(c.SecretPath())
	if err != nil {
		t.Fatal(err)
	}
	token := func(s credentials.Secret) string {
		text, err := credentials.Token{Cluster: "local", Namespace: e.Namespace, Etcd: e.Etcd, NATS: e.NATS, Secret: s}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token(secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := dial.Etcd(config.EtcdClient{}, e.Etcd, dial.Identity{User: "test", Secret: secret}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	joined := func(q *process) {
		t.Helper()
		for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			select {
			case err := <-q.ended:
				t.Fatalf("dynamod ended: %v\n%s", err, q.stderr.String())
			default:
			}
			if kvs, _, err := store.List(t.Context(), cluster.NodePrefix); err == nil && len(kvs) == 2 && strings.Contains(q.stderr.String(), "node is up") {
				return
			}
		}
		t.Fatalf("the node has not joined\n%s", q.stderr.String())
	}
	second := t.TempDir()
	args := []string{"--node-name", "node-2", "--frontend-enabled=false", "--cpu-cores", "1"}
	q := start(t, second, append(args, "--join", file)...)
	joined(q)
	q.signal(syscall.SIGTERM)
	if code := q.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, q.stderr.String())
	}
	if info, err := os.Stat(filepath.Join(second, "local", "secret")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret: %v %v", info, err)
	}
	again := start(t, second, args...)
	joined(again)

	// What has a secret already, or stores, is left alone.
	other := start(t, second, append(args, "--node-name", "node-3", "--join", token(credentials.New()))...)
	if code := other.wait(); code != exitFailed || !strings.Contains(other.stderr.String(), "secret of another cluster") || !strings.Contains(other.stderr.String(), "--cluster NAME") {
		t.Errorf("a token of another cluster: exit code %d\n%s", code, other.stderr.String())
	}
	host := start(t, first, "--join", token(secret))
	if code := host.wait(); code != exitUsage || !strings.Contains(host.stderr.String(), "it has the etcd of one") {
		t.Errorf("the node that the others join: exit code %d\n%s", code, host.stderr.String())
	}
	for _, q := range []*process{again, p} {
		q.signal(syscall.SIGTERM)
		if code := q.wait(); code != 0 {
			t.Errorf("exit code %d\n%s", code, q.stderr.String())
		}
	}
}

// meetWith loads settings from flags and variables and meets a cluster.
func meetWith(t *testing.T, state string, stdin string, environ ...string) (config.Dynamod, *meeting, error) {
	t.Helper()
	cfg, origins, err := config.LoadDynamod(config.Input{Environ: append([]string{"DYNAMOD_STATE_DIR=" + state, "HOME=" + state}, environ...)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := meet(&cfg, origins, strings.NewReader(stdin))
	return cfg, m, err
}

func TestMeet(t *testing.T) {
	tok := credentials.Token{Cluster: "lab", Namespace: "team", Etcd: []string{"dynamod://10.0.0.5:2379"}, NATS: "dynamod://10.0.0.5:4222", Secret: credentials.New()}
	text, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	for name, environ := range map[string][]string{"variable": {"DYNAMOD_JOIN=" + text}, "standard input": {"DYNAMOD_JOIN=-"}} {
		cfg, m, err := meetWith(t, state, text, environ...)
		if err != nil || m == nil || !reflect.DeepEqual(m.token, tok) {
			t.Fatalf("%s: %+v %v", name, m, err)
		}
		if cfg.Cluster != "lab" || cfg.Namespace != "team" || !reflect.DeepEqual(cfg.Etcd.Endpoints, tok.Etcd) || cfg.NATS.URL != tok.NATS {
			t.Errorf("%s: %+v", name, cfg)
		}
		if _, err := os.Stat(filepath.Join(state, "lab")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: looking at a token wrote something: %v", name, err)
		}
	}
	cfg, m, err := meetWith(t, state, "", "DYNAMOD_JOIN="+text, "DYNAMOD_CLUSTER=mine", "DYN_NAMESPACE=other")
	if err != nil || cfg.Cluster != "mine" || cfg.Namespace != "other" {
		t.Fatalf("names that were chosen: %+v %v", cfg, err)
	}
	if err := m.join(); err != nil {
		t.Fatal(err)
	}
	// Later starts know it, unless they are told otherwise.
	for _, tc := range []struct {
		environ []string
		want    []string
	}{
		{[]string{"DYNAMOD_CLUSTER=mine"}, tok.Etcd},
		{nil, []string{}},
		{[]string{"DYNAMOD_CLUSTER=mine", "ETCD_ENDPOINTS=10.0.0.9:2379"}, []string{"10.0.0.9:2379"}},
		{[]string{"DYNAMOD_CLUSTER=mine", "DYNAMOD_ETCD_MODE=embedded"}, []string{}},
	} {
		cfg, m, err := meetWith(t, state, "", tc.environ...)
		if err != nil || m != nil || !reflect.DeepEqual(cfg.Etcd.Endpoints, tc.want) {
			t.Errorf("%v: %v %+v %v, want %v", tc.environ, cfg.Etcd.Endpoints, m, err, tc.want)
		}
		if err := m.join(); err != nil {
			t.Errorf("nothing to join: %v", err)
		}
	}
	for _, tc := range []struct{ environ, want string }{
		{"ETCD_ENDPOINTS=10.0.0.9:2379", "etcd.endpoints (ETCD_ENDPOINTS) and a join token"},
		{"DYNAMOD_NATS_MODE=embedded", "nats.mode"},
		{"DYNAMOD_SECRET_FILE=/x", "secret_file"},
	} {
		if _, _, err := meetWith(t, state, "", "DYNAMOD_JOIN="+text, tc.environ); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.environ, err)
		}
	}
	for _, bad := range []string{"dynctl1:abc", filepath.Join(state, "missing"), "dynctl9:x"} {
		if _, _, err := meetWith(t, state, "", "DYNAMOD_JOIN="+bad); err == nil || !strings.Contains(err.Error(), "join token") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A token can name NATS; a node whose cluster had its state in NATS or files has it there again.
func TestMeetWithoutEtcd(t *testing.T) {
	state := t.TempDir()
	tok := credentials.Token{Cluster: "lab", Namespace: "team", Etcd: []string{"bucket://mine"}, NATS: "dynamod://10.0.0.5:4222", Secret: credentials.New()}
	text, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	at := config.Discovery{Backend: "nats", Bucket: "mine"}
	cfg, m, err := meetWith(t, state, text, "DYNAMOD_JOIN=-")
	if err != nil || cfg.Discovery != at || len(cfg.Etcd.Endpoints) != 0 || cfg.NATS.URL != tok.NATS || cfg.Validate() != nil {
		t.Fatalf("token: %+v %v", cfg, err)
	}
	if err := m.join(); err != nil {
		t.Fatal(err)
	}
	if cfg, m, err := meetWith(t, state, "", "DYNAMOD_CLUSTER=lab"); err != nil || m != nil || cfg.Discovery != at || cfg.NATS.URL != tok.NATS {
		t.Errorf("later: %+v %v", cfg, err)
	}

	own, err := statedir.Open(state, "own")
	if err == nil {
		err = os.MkdirAll(own.Path, 0o700)
	}
	if err == nil {
		err = own.SetBackend(statedir.Backend{Name: "nats", Bucket: "mine"})
	}
	if err != nil {
		t.Fatal(err)
	}
	// A node with that NATS inside would join itself.
	if _, _, err := meetWith(t, state, text, "DYNAMOD_CLUSTER=own", "DYNAMOD_JOIN=-", "DYNAMOD_NODE_NAME=other"); err != nil {
		t.Errorf("a node without a store: %v", err)
	}
	self, err := own.Node("node-1")
	if err == nil {
		err = os.MkdirAll(filepath.Join(self.NATSDir(), "jetstream"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := meetWith(t, state, text, "DYNAMOD_CLUSTER=own", "DYNAMOD_JOIN=-"); err == nil || !strings.Contains(err.Error(), "it has the NATS of one, with data in "+self.NATSDir()+"; if the token is for that cluster, start the node without it") {
		t.Errorf("joining itself: %v", err)
	}
	if cfg, _, err := meetWith(t, state, "", "DYNAMOD_CLUSTER=own"); err != nil || cfg.Discovery != at || cfg.EmbedsEtcd() {
		t.Errorf("remembered: %+v %v", cfg.Discovery, err)
	}
	if _, _, err := meetWith(t, state, "", "DYNAMOD_CLUSTER=own", "DYN_DISCOVERY_BACKEND=etcd"); err == nil || !strings.Contains(err.Error(), "nats (bucket mine) holds the state of cluster own") {
		t.Errorf("another backend: %v", err)
	}
	for _, elsewhere := range []string{"ETCD_ENDPOINTS=10.0.0.9:2379", "NATS_SERVER=nats://10.0.0.9:4222 DYN_DISCOVERY_BACKEND=nats"} {
		environ := append(strings.Fields(elsewhere), "DYNAMOD_CLUSTER=own")
		if cfg, _, err := meetWith(t, state, "", environ...); err != nil || cfg.EmbedsEtcd() {
			t.Errorf("%s: %v", elsewhere, err)
		}
	}
}
