package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

// TestMain runs the tests, or plays dynamod when the test binary is called by that
// name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "dynamod" {
		os.Exit(fakeDynamod(os.Args[1:]))
	}
	code := m.Run()
	stopServers()
	os.Exit(code)
}

// servers are the etcd and NATS that all worlds of this process share. They hold one
// world at a time: nodes belong to no namespace.
var servers struct {
	sync.Mutex
	dir  string
	etcd *embedded.Etcd
	nats *embedded.NATS
	n    int
}

func startServers(t *testing.T) (endpoint, url, namespace string) {
	t.Helper()
	servers.Lock()
	defer servers.Unlock()
	if servers.etcd == nil {
		dir, err := os.MkdirTemp("", "dynctl-cli-")
		if err != nil {
			t.Fatal(err)
		}
		servers.dir = dir
		log := slog.New(slog.DiscardHandler)
		if servers.nats, err = embedded.StartNATS(context.Background(), embedded.NATSOptions{Dir: filepath.Join(dir, "nats"), Addr: "127.0.0.1:0", Log: log}); err != nil {
			t.Fatal(err)
		}
		// The last one to start: without it the next world starts both.
		if servers.etcd, err = embedded.StartEtcd(context.Background(), embedded.EtcdOptions{
			Dir: filepath.Join(dir, "etcd"), ClientAddr: "127.0.0.1:0", Log: log, UnsafeNoFsync: true, TickMS: 50, ElectionMS: 500,
		}); err != nil {
			_ = servers.nats.Close()
			t.Fatal(err)
		}
	}
	servers.n++
	return servers.etcd.Endpoint(), servers.nats.URL(), fmt.Sprintf("test%d", servers.n)
}

func stopServers() {
	if servers.etcd != nil {
		_ = servers.nats.Close()
		_ = servers.etcd.Close()
		_ = os.RemoveAll(servers.dir)
	}
}

// world is a cluster on external stores, with fake agents in this process.
type world struct {
	t     *testing.T
	store *store.Etcd
	bus   events.Bus
	ns    string
	env   []string
	state string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	endpoint, url, ns := startServers(t)
	log := slog.New(slog.DiscardHandler)
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{endpoint}}, log)
	if err != nil {
		t.Fatal(err)
	}
	bus, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: url, Name: "test"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: s, bus: bus, ns: ns, state: t.TempDir()}
	w.env = []string{"DYNCTL_CLUSTER=lab", "DYNCTL_NAMESPACE=" + ns, "ETCD_ENDPOINTS=" + endpoint, "NATS_SERVER=" + url, "DYNCTL_STATE_DIR=" + w.state, "HOME=" + w.state}
	t.Cleanup(func() {
		_ = bus.Close()
		_ = s.Close()
	})
	return w
}

// agent starts a fake agent in the world.
func (w *world) agent(cfg fakeConfig) *fakeAgent {
	w.t.Helper()
	cfg.Store, cfg.Bus, cfg.Namespace = w.store, w.bus, w.ns
	local, err := statedir.Open(w.state, "lab")
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.SecretFile = local.SecretPath()
	if cfg.Name == "" {
		cfg.Name = "node-1"
	}
	a, err := startAgent(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(a.close)
	return a
}

// up brings the cluster to a number of workers.
func (w *world) up(prefill, decode int) {
	w.t.Helper()
	w.ok("up", "--prefill", fmt.Sprint(prefill), "--decode", fmt.Sprint(decode), "--timeout", "1m")
}

// topology is the desired state of the world.
func (w *world) topology() cluster.Topology {
	w.t.Helper()
	kv, err := w.store.Get(w.t.Context(), cluster.TopologyKey(w.ns))
	if err != nil {
		w.t.Fatal(err)
	}
	topo, err := store.DecodeJSON[cluster.Topology](kv)
	if err != nil {
		w.t.Fatal(err)
	}
	return topo
}

// run runs one command line without a terminal.
func (w *world) run(args ...string) result {
	w.t.Helper()
	return w.with(w.t.Context(), options{}, args...)
}

// ok runs one that must succeed.
func (w *world) ok(args ...string) result {
	w.t.Helper()
	r := w.run(args...)
	if r.code != 0 {
		w.t.Fatalf("dynctl %s: exit %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r
}

// options say how a command line is run.
type options struct {
	tty   bool
	input string
	env   []string
	width int
	// These see what is written while the command runs.
	stdout, stderr io.Writer
}

func (w *world) with(ctx context.Context, o options, args ...string) result {
	o.env = append(append([]string{}, w.env...), o.env...)
	return runMain(ctx, o, args...)
}

type result struct {
	stdout, stderr string
	code           int
}

func runMain(ctx context.Context, o options, args ...string) result {
	var out, errs bytes.Buffer
	var stdout, stderr io.Writer = &out, &errs
	if o.stderr != nil {
		stderr = io.MultiWriter(&errs, o.stderr)
	}
	if o.stdout != nil {
		stdout = io.MultiWriter(&out, o.stdout)
	}
	if o.width == 0 {
		o.width = 100
	}
	if o.tty {
		o.env = append([]string{"TERM=xterm"}, o.env...)
	}
	env := session.Env{
		Streams: term.Streams{
			In: strings.NewReader(o.input), Out: stdout, Err: stderr, InTTY: o.tty, OutTTY: o.tty, ErrTTY: o.tty,
			Measure: func() (int, int) { return o.width, 30 },
		},
		Environ:    o.env,
		Dir:        os.TempDir(),
		Executable: func() (string, error) { return "/nowhere/dynctl", nil },
	}
	code := Main(ctx, args, env)
	return result{out.String(), errs.String(), code}
}

// pacer has workers stand still in some states until a command has shown them.
type pacer struct {
	t     *testing.T
	state func(cluster.WorkerStatus) bool
	shown chan struct{}
	watchWriter
}

// newPacer waits, where state is true, until text is written to it.
func newPacer(t *testing.T, text string, state func(cluster.WorkerStatus) bool) *pacer {
	p := &pacer{t: t, state: state, shown: make(chan struct{})}
	p.want, p.then = text, func() { close(p.shown) }
	return p
}

func (p *pacer) pace(st cluster.WorkerStatus) {
	if !p.state(st) {
		return
	}
	select {
	case <-p.shown:
	case <-p.t.Context().Done():
	case <-time.After(time.Minute):
		p.t.Errorf("never shown: %s", p.want)
	}
}
