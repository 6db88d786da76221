package clustertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// topVariable says for how long each view of the dashboard is measured; topOutVariable
// where the figures go.
const (
	topVariable    = "DYNCTL_BENCH_TOP"
	topOutVariable = "DYNCTL_BENCH_TOP_OUT"
)

// What TestTop simulates.
const (
	topWorkers   = 1000
	topNodes     = 32
	topFrontends = 4
	topKVEvents  = 500 // each second
	topDecisions = 100 // each second
)

// "dynctl top" watches a cluster of a thousand workers, none of which computes: their
// agents are simulated here, at the stores, as a real cluster would write to them. The
// dashboard is the program itself on a terminal of 160x50. This measures and asserts
// nothing.
func TestTop(t *testing.T) {
	if os.Getenv(topVariable) == "" {
		t.Skip("measures for minutes: make bench-top")
	}
	duration, err := time.ParseDuration(os.Getenv(topVariable))
	if err != nil {
		t.Fatalf("%s: %v", topVariable, err)
	}
	log := slog.New(slog.DiscardHandler)
	s := clustertest.StartServers(t, log)
	simulate(t, s, log)

	dir := t.TempDir()
	program := filepath.Join(dir, "dynctl")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../cmd/dynctl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{"top", "--etcd-endpoints", s.EtcdAddr, "--nats-url", "nats://" + s.NATSAddr, "--state-dir", dir}
	checkSimulation(t, program, args)
	d := startDashboard(t, 160, 50, program, append(args, "--theme", "dark")...)
	d.wait("1,000 workers", "(1,000)")
	var out strings.Builder
	fmt.Fprintf(&out, "| view | keys | CPU of one core | of it in the kernel | resident memory | written to the terminal |\n|---|---|---:|---:|---:|---:|\n")
	for _, view := range []struct{ name, keys, show string }{
		{"all panes", "", "-"},
		{"workers, sorted by tokens/s", "1zssssss", "z, s"},
		{"one worker", "\r", "enter"},
		{"nodes", "\x1bn", "n"},
		{"frozen", "\x1b\x1bzp", "p"},
		{"all panes, again", "p", "p"},
	} {
		d.press(view.keys)
		time.Sleep(5 * time.Second) // the view is there, and what it cost to get there is paid
		f := d.measure(duration)
		fmt.Fprintf(&out, "| %s | %s | %.1f %% | %.1f %% | %d MiB | %.1f kB/s |\n", view.name, view.show, f.cpu*100, f.system*100, f.memory>>20, f.written/1000)
	}
	d.press("q")
	d.end()
	report := out.String()
	t.Log("\n" + report)
	if name := os.Getenv(topOutVariable); name != "" {
		if err := os.WriteFile(name, []byte(topReport(duration, report)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// checkSimulation makes sure that dynctl sees what is simulated.
func checkSimulation(t *testing.T, program string, args []string) {
	t.Helper()
	out, err := exec.Command(program, append(args, "--once", "-o", "json", "--interval", "3s")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var s cluster.Snapshot
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatal(err)
	}
	measured := 0
	for i := range s.Workers {
		if s.Workers[i].TokS != nil {
			measured++
		}
	}
	if measured < topWorkers*9/10 || s.KVEventRate == nil || *s.KVEventRate < topKVEvents*0.8 || len(s.Decisions) < 200 || s.Latency.Requests == 0 {
		t.Fatalf("dynctl sees %d workers at work, %d decisions, %v KV events a second, %d requests", measured, len(s.Decisions), s.KVEventRate, s.Latency.Requests)
	}
}

func topReport(duration time.Duration, table string) string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf(`# What dynctl top costs

Written by `+"`make bench-top`"+`: %s, %d CPUs, %s.

`+"`dynctl top`"+` on a terminal of 160x50 watches %d simulated workers on %d nodes at a real etcd and NATS: each worker sends its status every second, all
together %d KV events and %d router decisions, the decisions with 20 candidates. Each view is measured for %s, by the processor time of the process.

%s
Every frame is drawn anew only when something on it has changed, at most ten times a second, which leases that count down do. Only the rows that are
visible are drawn. Memory is bounded: of events and decisions the newest 200 are kept, of the depth 120 samples, of each worker what five minutes need.
`, model, runtime.NumCPU(), runtime.Version(), topWorkers, topNodes, topKVEvents, topDecisions, duration, table)
}

// simulate plays the agents of a cluster until the test ends.
func simulate(t *testing.T, s *clustertest.Servers, log *slog.Logger) {
	st, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{s.EtcdAddr}}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	bus, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: "nats://" + s.NATSAddr, Name: "simulation"}}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	sim := &simulation{t: t, store: st, bus: bus, begin: time.Now()}
	sim.populate()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sim.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

type simulation struct {
	t       *testing.T
	store   *store.Etcd
	bus     *events.NATS
	begin   time.Time
	nodes   []cluster.Node
	workers []cluster.WorkerStatus
}

func (m *simulation) put(key string, v any, lease cluster.InstanceID) {
	m.t.Helper()
	if _, err := store.PutJSON(m.t.Context(), m.store, key, v, store.WithLease(lease)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *simulation) grant() cluster.InstanceID {
	m.t.Helper()
	l, err := m.store.GrantLease(m.t.Context(), time.Hour)
	if err != nil {
		m.t.Fatal(err)
	}
	return l.ID
}

// populate declares the cluster.
func (m *simulation) populate() {
	ns := cluster.DefaultNamespace
	model := cluster.ModelSpec{Name: "simulated"}
	for i := range topNodes {
		n := cluster.Node{ID: fmt.Sprint("id-", i), Name: fmt.Sprint("node-", i+1), Host: fmt.Sprint("host-", i/8), Version: "0.0.0", InstanceID: m.grant(), StartedAt: m.begin,
			Devices: []cluster.Device{{ID: "cpu:0", Cores: 64}}}
		m.put(cluster.NodeKey(n.ID), n, n.InstanceID)
		m.nodes = append(m.nodes, n)
	}
	m.put(cluster.TopologyKey(ns), cluster.Topology{Model: model, Prefill: topWorkers / 4, Decode: topWorkers - topWorkers/4, Generation: 1}, 0)
	for i := range topWorkers {
		role := cluster.RoleDecode
		if i%4 == 0 {
			role = cluster.RolePrefill
		}
		w := cluster.WorkerStatus{Name: cluster.WorkerName(i + 1), Role: role, Model: model.Name, Node: m.nodes[i%topNodes].ID, Device: "cpu:0", State: cluster.StateReady,
			InstanceID: m.grant(), LeaseTTLMS: 10000, StartedAt: m.begin, UpdatedAt: m.begin, Generation: 1,
			Stats: cluster.WorkerStats{MaxSeqs: 64, BlockSize: 16, KVTotal: 4096}}
		m.put(cluster.AssignmentKey(ns, w.Name), cluster.Assignment{Name: w.Name, Role: role, Node: w.Node, Device: w.Device, Model: model, Desire: cluster.DesireRun, Generation: 1}, 0)
		m.put(cluster.StatusKey(ns, w.Name), w, w.InstanceID)
		for _, endpoint := range []string{cluster.EndpointGenerate, cluster.EndpointStats, cluster.EndpointPaths} {
			inst := cluster.Instance{Type: cluster.InstanceType, Namespace: ns, Component: role.Component(), Endpoint: endpoint, InstanceID: w.InstanceID, Worker: w.Name, Node: w.Node}
			m.put(inst.Key(), inst, w.InstanceID)
		}
		m.workers = append(m.workers, w)
	}
}

// run publishes what a busy cluster does, spread over each second.
func (m *simulation) run(ctx context.Context) {
	const slices = 50
	tick := time.NewTicker(time.Second / slices)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := n % slices; i < topWorkers; i += slices {
			m.status(ctx, &m.workers[i], n+i)
		}
		for i := range topKVEvents / slices {
			m.kvEvent(ctx, &m.workers[(n*7+i*13)%topWorkers], uint64(n))
		}
		for i := range topDecisions / slices {
			m.decision(ctx, n*topDecisions/slices+i)
		}
		if n%slices < topFrontends {
			m.frontend(ctx, n%slices)
		}
	}
}

func (m *simulation) publish(ctx context.Context, component, topic string, v any) {
	_ = m.bus.Publish(ctx, events.Subject(cluster.DefaultNamespace, component, topic), v) // may be lost, as everywhere
}

func (m *simulation) status(ctx context.Context, w *cluster.WorkerStatus, n int) {
	w.UpdatedAt = time.Now()
	s := &w.Stats
	s.Running, s.Waiting, s.KVActive, s.KVCached = n%48, n%3, n%3000, 500
	s.RequestsTotal += uint64(n % 5)
	s.FinishedTotal = s.RequestsTotal
	s.PromptTokensTotal += uint64(n % 4000)
	s.CachedTokensTotal += uint64(n % 1000)
	s.GeneratedTotal += uint64(n % 900)
	s.ComputedTotal += uint64(n % 9000)
	s.StepsTotal += 50
	s.StepNanosTotal += uint64(n%900) * 1e6
	m.publish(ctx, w.Role.Component(), cluster.TopicWorkerStatus, w)
}

func (m *simulation) kvEvent(ctx context.Context, w *cluster.WorkerStatus, n uint64) {
	e := cluster.KVEvent{WorkerID: w.InstanceID, Worker: w.Name, EventID: n, Kind: cluster.KVStored, Count: 4, Time: time.Now()}
	for i := range uint64(4) {
		e.Stored = append(e.Stored, cluster.KVStoredBlock{BlockHash: n<<32 + i, TokensHash: i})
	}
	m.publish(ctx, w.Role.Component(), cluster.TopicKVEvents, e)
}

func (m *simulation) decision(ctx context.Context, n int) {
	w := m.workers[n%topWorkers]
	d := cluster.RouterDecision{RequestID: fmt.Sprintf("%024x", n), Time: time.Now(), Model: w.Model, Phase: cluster.RoleDecode, Policy: "least-loaded", Chosen: w.Name, PromptToks: 900, Blocks: 56, Overlap: n % 50, Prefill: "worker-1", PrefillWay: "queue"}
	for i := range 20 {
		c := m.workers[(n+i)%topWorkers]
		d.Candidates = append(d.Candidates, cluster.RouteCandidate{Worker: c.Name, ID: c.InstanceID, Cost: float64(i), Load: i})
	}
	m.publish(ctx, "frontend", cluster.TopicRouterDecisions, d)
}

func (m *simulation) frontend(ctx context.Context, i int) {
	n := m.nodes[i]
	f := cluster.FrontendStats{Frontend: n.Name, InstanceID: n.InstanceID, Time: time.Now(), InFlight: 900, Started: 25, Finished: 25, OutTokens: 9000}
	for k := range 25 {
		f.TTFT.Observe(time.Duration(100+k) * time.Millisecond)
		f.ITL.Observe(time.Duration(10+k) * time.Millisecond)
	}
	m.publish(ctx, "frontend", cluster.TopicFrontendStats, f)
}

// dashboard is a program on a pseudo-terminal.
type dashboard struct {
	t       *testing.T
	cmd     *exec.Cmd
	far     *os.File
	written atomic.Int64
	screen  chan []byte // capacity 1: what came lately
	read    chan struct{}
}

func startDashboard(t *testing.T, w, h uint16, program string, args ...string) *dashboard {
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(far.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(far.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := unix.IoctlSetWinsize(int(far.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: h, Col: w}); err != nil {
		t.Fatal(err)
	}
	d := &dashboard{t: t, cmd: exec.Command(program, args...), far: far, screen: make(chan []byte, 1), read: make(chan struct{})}
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = tty, tty, tty
	d.cmd.Env = append(os.Environ(), "TERM=xterm-256color", "COLORTERM=truecolor", "NO_COLOR=")
	if err := orphan.Start(d.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.read)
		buf := make([]byte, 64<<10)
		for {
			n, err := far.Read(buf)
			d.written.Add(int64(n))
			select {
			case <-d.screen:
			default:
			}
			d.screen <- bytes.Clone(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_, _ = d.cmd.Process.Wait()
		<-d.read
		_ = far.Close()
	})
	return d
}

// wait waits until one of the words is on the screen.
func (d *dashboard) wait(words ...string) {
	d.t.Helper()
	deadline := time.After(time.Minute)
	var last []byte
	for {
		select {
		case last = <-d.screen:
			for _, w := range words {
				if bytes.Contains(last, []byte(w)) {
					return
				}
			}
		case <-deadline:
			d.t.Fatalf("the dashboard never shows %q; it shows\n%q", words, last)
		}
	}
}

// press types keys one by one: an escape sequence is no key and an escape.
func (d *dashboard) press(keys string) {
	d.t.Helper()
	for _, k := range keys {
		if _, err := io.WriteString(d.far, string(k)); err != nil {
			d.t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// footprint is what the dashboard used for a while.
type footprint struct {
	cpu, system float64 // share of one core, all of it and in the kernel
	memory      int64   // resident, in the end
	written     float64 // bytes each second
}

func (d *dashboard) measure(duration time.Duration) footprint {
	d.t.Helper()
	user, system, _ := d.used()
	written, begin := d.written.Load(), time.Now()
	time.Sleep(duration)
	took := time.Since(begin).Seconds()
	user2, system2, memory := d.used()
	return footprint{
		cpu: (user2 + system2 - user - system) / took, system: (system2 - system) / took,
		memory: memory, written: float64(d.written.Load()-written) / took,
	}
}

// used reads the seconds of processor time and the resident memory of the program.
func (d *dashboard) used() (user, system float64, memory int64) {
	d.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest) // from field 3 of proc(5) on
	number := func(i int) float64 {
		v, err := strconv.ParseFloat(f[i-3], 64)
		if err != nil {
			d.t.Fatal(err)
		}
		return v
	}
	const ticks = 100 // USER_HZ
	return number(14) / ticks, number(15) / ticks, int64(number(24)) * int64(os.Getpagesize())
}

func (d *dashboard) end() {
	d.t.Helper()
	select {
	case <-d.read:
	case <-time.After(patience.Soon):
		d.t.Error("the dashboard does not leave")
	}
}
