package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cli/up"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/statedir"
)

// machine is a machine on which dynctl starts fake dynamod processes.
type machine struct {
	t     *testing.T
	bin   string // holds dynctl and dynamod
	state string
	env   []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	t.Parallel() // machines share nothing and mostly wait
	m := &machine{t: t, bin: t.TempDir(), state: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(m.bin, "dynamod")); err != nil {
		t.Fatal(err)
	}
	m.env = []string{"DYNCTL_CLUSTER=lab", "DYNCTL_STATE_DIR=" + m.state, "HOME=" + m.state, "TMPDIR=" + os.TempDir()}
	t.Cleanup(m.killAll)
	return m
}

func (m *machine) cluster() statedir.Cluster {
	c, err := statedir.Open(m.state, "lab")
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *machine) running() []launch.Running {
	m.t.Helper()
	r, err := launch.List(m.cluster())
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// killAll ends what a failed test left.
func (m *machine) killAll() {
	for _, r := range m.running() {
		_ = syscall.Kill(r.PID, syscall.SIGKILL)
		clitest.Eventually(m.t, "a killed dynamod is gone", func() bool { return !launch.Alive(r.PID) })
	}
}

func (m *machine) run(args ...string) result {
	m.t.Helper()
	return m.with(m.t.Context(), options{}, args...)
}

func (m *machine) with(ctx context.Context, o options, args ...string) result {
	var out, errs bytes.Buffer
	env := session.Env{
		Streams: term.Streams{In: strings.NewReader(o.input), Out: &out, Err: &errs, InTTY: o.tty, OutTTY: o.tty, ErrTTY: o.tty, Measure: func() (int, int) { return 100, 30 }},
		Environ: append(append([]string{}, m.env...), o.env...), Dir: m.state,
		Executable: func() (string, error) { return filepath.Join(m.bin, "dynctl"), nil },
	}
	if o.stderr != nil {
		env.Streams.Err = o.stderr
	}
	code := Main(ctx, args, env)
	return result{out.String(), errs.String(), code}
}

// up starts a cluster with a frontend on any port.
func (m *machine) up(args ...string) result {
	m.t.Helper()
	r := m.run(append([]string{"up", "--port", "0", "--timeout", "1m"}, args...)...)
	if r.code != 0 {
		m.t.Fatalf("up: exit %d\n%s%s", r.code, r.stderr, m.output())
	}
	return r
}

// output returns the output of the processes.
func (m *machine) output() string {
	files, _ := filepath.Glob(filepath.Join(m.state, "lab", "*", "dynamod.out"))
	var b strings.Builder
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "== %s\n%s", f, text)
	}
	return b.String()
}

// gone fails if anything of the cluster is left but data and logs.
func (m *machine) gone() {
	m.t.Helper()
	if r := m.running(); len(r) > 0 {
		m.t.Errorf("processes are left: %v", r)
	}
	for _, glob := range []string{"cluster.json", "up.lock", "*/lock"} {
		if left, _ := filepath.Glob(filepath.Join(m.state, "lab", glob)); len(left) > 0 {
			m.t.Errorf("left: %v", left)
		}
	}
}

func TestUpAndDown(t *testing.T) {
	m := newMachine(t)
	r := m.up("--prefill", "1", "--decode", "2")
	want := regexp.MustCompile(`^(http://127\.0\.0\.1:\d+)\ncurl (http://\S+)/v1/chat/completions -H 'Content-Type: application/json' -d '\{"model":"dynctl-tiny","max_tokens":32,"messages":\[\{"role":"user","content":"Hello"\}\]\}'\n$`)
	if g := want.FindStringSubmatch(r.stdout); g == nil || g[1] != g[2] {
		t.Errorf("answer\n%s", r.stdout)
	}
	clitest.Has(t, "stderr", r.stderr, "etcd embedded ready 127.0.0.1:", "node-1 agent ready", "worker-3 decode cpu0 2c ready", "lab is ready after", "knows this system and little else")
	clitest.Has(t, "arguments", m.output(), "arguments: --cluster=lab --namespace=dynamo --state-dir="+m.state+" --node-name=node-1 --frontend-port=0\n")

	// The same again changes nothing.
	clitest.Matches(t, "a second up", m.up().stderr, `lab is ready after \d+\.\ds: 1 prefill \+ 2 decode workers`)
	clitest.Has(t, "ps", m.run("ps").stdout, "worker-1\tprefill", "worker-3\tdecode")

	r = m.run("down")
	if r.code != 0 || !regexp.MustCompile(`^cluster lab is down: stopped 3 workers and 1 dynamod process in \d+\.\ds\n$`).MatchString(r.stdout) {
		t.Errorf("down: exit %d %q\n%s", r.code, r.stdout, r.stderr)
	}
	m.gone()
	if r := m.run("down"); r.code != 0 || r.stdout != "nothing runs\n" || r.stderr != "" {
		t.Errorf("a second down: %+v", r)
	}
	if r := m.run("ps"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "cannot list workers: cluster lab does not run on this machine\n  try: dynctl up\n") {
		t.Errorf("ps without a cluster: %+v", r)
	}
	// What was declared before does not come back by itself.
	clitest.Has(t, "up after down", m.up("--prefill", "0").stderr, "1 decode worker, model")
	if r := m.run("down", "-o", "json"); r.code != 0 || !strings.Contains(r.stdout, `"processes_stopped": 1`) {
		t.Errorf("down -o json: %+v", r)
	}
}

func TestDownPurges(t *testing.T) {
	m := newMachine(t)
	m.up("--decode", "1")
	dir := m.cluster().Path
	r := m.run("down", "--purge")
	if r.code != exit.Usage || len(m.running()) != 1 {
		t.Errorf("unasked: %+v", r)
	}
	clitest.Has(t, "question", r.stderr, "needs --yes when not interactive", "Stop cluster lab and delete its data, logs and secret (", dir)
	if r := m.run("down", "--purge", "--yes", "--namespace", "dynamo"); r.code != exit.Usage || !strings.Contains(r.stderr, "leave out --namespace") {
		t.Errorf("of a namespace: %+v", r)
	}
	clitest.Has(t, "plan", m.run("down", "--purge", "--dry-run").stdout, "would stop node-1", "would delete "+dir+"\n")
	r = m.run("down", "--purge", "--yes")
	if _, err := os.Stat(dir); r.code != 0 || !os.IsNotExist(err) {
		t.Errorf("%v: %+v", err, r)
	}
	clitest.Has(t, "answer", r.stdout, "cluster lab is down: ", "; deleted ", dir)
	if r := m.run("down", "--purge"); r.code != 0 || r.stdout != "nothing runs\n" {
		t.Errorf("again: %+v", r)
	}

	// What a cluster left that was stopped before is deleted, too.
	m.up("--decode", "1")
	m.run("down")
	if r := m.run("down", "--purge", "--yes"); r.code != 0 || !strings.HasPrefix(r.stdout, "nothing runs; deleted ") {
		t.Errorf("later: %+v", r)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}

// Nodes that cannot be stopped from here keep the cluster's data from being deleted.
func TestPurgeRefusesWithNodesElsewhere(t *testing.T) {
	m := newMachine(t)
	m.up("--decode", "1")
	e, err := m.cluster().Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(m.cluster().SecretPath())
	if err != nil {
		t.Fatal(err)
	}
	secret, err := credentials.Decode(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := dial.Etcd(config.EtcdClient{}, []string{config.SchemeDynamod + strings.TrimPrefix(e.Etcd[0], config.SchemeDynamod)}, dial.Identity{User: "dynctl", Secret: secret}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	body, err := json.Marshal(cluster.Node{ID: "n9", Name: "gpu-9", Host: "elsewhere", Namespace: "dynamo"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), cluster.NodeKey("n9"), body); err != nil {
		t.Fatal(err)
	}
	r := m.run("down", "--purge", "--yes")
	if r.code != exit.Failed || len(m.running()) != 1 {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "gpu-9 cannot be stopped from here and would be left without a cluster")
}

func TestUpWithAgents(t *testing.T) {
	m := newMachine(t)
	m.up("--agents", "3", "--prefill", "1", "--decode", "2")
	if n := len(m.running()); n != 3 {
		t.Fatalf("%d processes, want 3", n)
	}
	clitest.Has(t, "arguments", m.output(),
		"--node-name=node-1 --node-roles=decode --frontend-port=0\n",
		"--node-name=node-2 --node-roles=decode --etcd-endpoints=dynamod://127.0.0.1:",
		"--node-name=node-3 --node-roles=prefill --etcd-endpoints=dynamod://127.0.0.1:", " --frontend-enabled=false\n")
	clitest.Has(t, "placement", m.run("ps").stdout, "worker-1\tprefill\tcpu0 2c\tready\t0\t0/4096\tnode-3\t")
	// An agent that died is started again, and only that one.
	before := map[string]int{}
	for _, r := range m.running() {
		before[r.Node.Name] = r.PID
	}
	if err := syscall.Kill(before["node-2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "node-2 is dead", func() bool { return !launch.Alive(before["node-2"]) })
	m.up("--agents", "3")
	for _, r := range m.running() {
		if same := before[r.Node.Name] == r.PID; same == (r.Node.Name == "node-2") {
			t.Errorf("%s has process %d, had %d", r.Node.Name, r.PID, before[r.Node.Name])
		}
	}
	r := m.run("down", "--progress", "json")
	if r.code != 0 {
		t.Fatalf("down: exit %d\n%s", r.code, r.stderr)
	}
	// The node with the stores ends last.
	var last string
	for line := range strings.Lines(r.stderr) {
		var doc struct{ Item, State string }
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if doc.State == "gone" {
			last = doc.Item
		}
	}
	if last != "node-1" {
		t.Errorf("%s ended last:\n%s", last, r.stderr)
	}
	m.gone()
}

func TestTwoUpsAtOnce(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "FAKE_SLOW=300ms")
	var wg sync.WaitGroup
	results := make([]result, 2)
	for i := range results {
		wg.Go(func() { results[i] = m.run("up", "--port", "0", "--decode", "2", "--timeout", "1m") })
	}
	wg.Wait()
	waited := 0
	for _, r := range results {
		if r.code != 0 {
			t.Errorf("exit %d\n%s", r.code, r.stderr)
		}
		if strings.Contains(r.stderr, "which starts this cluster") {
			waited++
		}
	}
	if results[0].stdout != results[1].stdout || waited != 1 {
		t.Errorf("%d waited; answers\n%s%s", waited, results[0].stdout, results[1].stdout)
	}
	if n := len(m.running()); n != 1 {
		t.Errorf("%d processes", n)
	}
	if r := m.run("down"); r.code != 0 {
		t.Errorf("down: %+v", r)
	}
}

func TestUpTellsWhyDynamodEnded(t *testing.T) {
	m := newMachine(t)
	for _, tc := range []struct {
		name, why string
		want      []string
	}{
		{"port", "frontend 127.0.0.1:8000: port is in use", []string{"dynctl: cannot start node-1: frontend 127.0.0.1:8000: port is in use\n  its output: " + m.state, "\n  try: dynctl up --port "}},
		{"anything", "cannot read the configuration\n  line 7: unknown key", []string{"dynctl: cannot start node-1: cannot read the configuration\n  line 7: unknown key\n  its output:"}},
		{"directory", "write to state directory: permission denied", []string{"  try: dynctl up --state-dir DIR"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := m.with(t.Context(), options{env: []string{"FAKE_FAIL=" + tc.why}}, "up")
			if r.code != exit.Failed || r.stdout != "" {
				t.Errorf("exit %d, stdout %q", r.code, r.stdout)
			}
			clitest.Has(t, "stderr", r.stderr, tc.want...)
			m.gone()
		})
	}
	t.Run("another agent", func(t *testing.T) {
		r := m.with(t.Context(), options{env: []string{"FAKE_FAIL=no", "FAKE_FAIL_NODE=node-2"}}, "up", "--port", "0", "--agents", "2")
		clitest.Has(t, "stderr", r.stderr, "dynctl: cannot start node-2: no\n")
		if r.code != exit.Failed {
			t.Errorf("exit %d", r.code)
		}
		m.run("down")
		m.gone()
	})
}

func TestUpWithoutDynamod(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(filepath.Join(m.bin, "dynamod")); err != nil {
		t.Fatal(err)
	}
	r := m.run("up")
	if r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot start the cluster: dynamod not found: neither in "+m.bin+" nor in PATH", "one release")
	m.gone()
}

func TestUnwritableStateDirectory(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(m.state, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := m.run("up", "--state-dir", file)
	if r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot start the cluster: create state directory: ", "try: dynctl up --state-dir DIR")
}

// A killed cluster leaves a lock file, cluster.json, leases and a topology behind.
func TestUpAfterAKill(t *testing.T) {
	m := newMachine(t)
	m.up("--agents", "2", "--prefill", "1", "--decode", "2")
	for _, r := range m.running() {
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	clitest.Eventually(t, "everything is dead", func() bool { return len(m.running()) == 0 })
	if r := m.run("ps"); r.code != exit.Unreachable {
		t.Errorf("ps after the kill: exit %d\n%s", r.code, r.stderr)
	}
	// With fewer agents and workers, another model, and no wait for old leases.
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 1})
	r := m.up("--prefill", "0", "--decode", "1", "--model", dir, "--served-model-name", "qwen")
	clitest.Has(t, "stderr", r.stderr, "lab changes from 1 prefill + 2 decode workers to 1 decode worker, generation 1 to 2:", "~ decode.workers   2 → 1", "1 decode worker, model qwen")
	// Up returns once what is wanted serves; what it follows may leave a moment later.
	clitest.Eventually(t, "only the new worker serves", func() bool {
		ps := m.run("ps", "-o", "json").stdout
		return strings.Count(ps, `"state": "ready"`) == 1 && strings.Contains(ps, `"model": "qwen"`)
	})
	if strings.Contains(m.run("ps", "--nodes").stdout, "node-2") {
		t.Error("the dead node-2 is still listed")
	}
	if r := m.run("down"); r.code != 0 {
		t.Errorf("down: %+v", r)
	}
	m.gone()
}

func TestDownAfterAKill(t *testing.T) {
	m := newMachine(t)
	m.up("--agents", "2", "--prefill", "0")
	var stores int
	for _, r := range m.running() {
		if r.Node.Name == "node-1" {
			stores = r.PID
		}
	}
	if err := syscall.Kill(stores, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "etcd is dead", func() bool { return len(m.running()) == 1 })
	r := m.run("down", "--deadline", "5s")
	if r.code != 0 {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "workers are not drained: ")
	clitest.Has(t, "stdout", r.stdout, "cluster lab is down: stopped 1 dynamod process in ")
	m.gone()
}

func TestDownKillsAtTheDeadline(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "FAKE_STUBBORN=node-1", "FAKE_SEQUENCES=3", "FAKE_HOLD=1")
	m.up("--prefill", "0")
	if r := m.run("down", "--deadline", "0"); r.code != exit.Usage || !strings.Contains(r.stderr, "needs --yes when not interactive\n  Stop cluster lab? 3 sequences run on 1 worker: they are cut off.") {
		t.Fatalf("without --yes: %+v", r)
	}
	if r := m.with(t.Context(), options{tty: true, input: "n\n"}, "down"); r.code != exit.Failed || !strings.Contains(r.stderr, "[y/N] dynctl: cannot stop the cluster: not confirmed") {
		t.Fatalf("declined: %+v", r)
	}
	r := m.run("down", "--deadline", "200ms", "--grace", "200ms") // nobody to ask
	if r.code != 0 {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "the deadline of 0.2s passed: worker-1 not drained, 3 sequences run", "node-1 (process ", "did not end in time and was killed")
	clitest.Has(t, "stdout", r.stdout, "3 sequences cut off")
	m.gone()
}

func TestUpIsInterrupted(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "FAKE_LOAD=3s")
	ctx, cancel := context.WithCancel(t.Context())
	seen := &watchWriter{want: "worker-2 decode cpu0 2c loading", then: cancel}
	r := m.with(ctx, options{stderr: seen}, "up", "--port", "0", "--progress", "plain")
	if r.code != exit.Interrupted {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", seen.text(), "dynctl: stopped watching: cluster lab goes on starting\n  try: dynctl ps\n   or: dynctl down\n")
	if len(m.running()) != 1 {
		t.Error("the cluster does not go on")
	}
	m.run("down")
}

// The printed request works with an API key, and does not tell it.
func TestUpPrintsTheHeaderOfAnAPIKey(t *testing.T) {
	m := newMachine(t)
	m.up()
	for key, want := range map[string]string{
		"secret-1":          `-H "Authorization: Bearer $DYNAMOD_FRONTEND_API_KEY" -d '`,
		"secret-1,secret-2": `-H "Authorization: Bearer ${DYNAMOD_FRONTEND_API_KEY%%,*}" -d '`,
	} {
		for _, args := range [][]string{{"up"}, {"up", "--no-wait"}} {
			r := m.with(m.t.Context(), options{env: []string{"DYNAMOD_FRONTEND_API_KEY=" + key}}, args...)
			if clitest.Has(t, "with a key", r.stdout, want); strings.Contains(r.stdout+r.stderr, "secret") {
				t.Errorf("the key is told: %+v", r)
			}
		}
	}
	m.run("down")
}

// A model's name on Hugging Face is told from a path with a mistake.
func TestUpWithAModelThatIsNotHere(t *testing.T) {
	m := newMachine(t)
	for _, args := range [][]string{{"up", "--model", "Qwen/Qwen3-0.6B"}, {"up", "--set", "model.path=Qwen/Qwen3-0.6B"}, {"model", "inspect", "Qwen/Qwen3-0.6B"}} {
		r := m.run(args...)
		if r.code != exit.Failed {
			t.Errorf("%s: exit %d", args, r.code)
		}
		clitest.Has(t, strings.Join(args, " "), r.stderr, "model: Qwen/Qwen3-0.6B is no directory or file here; it looks like the name of a model on Hugging Face\n",
			"dynctl and dynamod download no models", "try: hf download Qwen/Qwen3-0.6B --local-dir ~/models/Qwen3-0.6B && dynctl ")
	}
	r := m.run("up", "--model", "/models/qwen3")
	clitest.Has(t, "a path", r.stderr, "cannot start the cluster: model: there is nothing at /models/qwen3\n")
	m.gone()
}

// The part of a model that reads images has a line and a count of its own.
func TestInspectVision(t *testing.T) {
	m := newMachine(t)
	r := m.run("model", "inspect", modeltest.Generate(t, modeltest.Vision()["llava"]))
	clitest.Has(t, "stdout", r.stdout,
		"clip_vision_model: 2 layers, hidden 24, 3 heads, FFN 40; 25 tokens of a view of 70 pixels in patches of 14\n", ", vision 25.6k\n")
	r = m.run("model", "inspect", modeltest.Generate(t, modeltest.Vision()["qwen2_5_vl"]))
	clitest.Has(t, "stdout", r.stdout, "base 10000, sections 1, 1, 2\n",
		"qwen2_5_vl: 3 layers, hidden 24, 2 heads, FFN 40; images of any size, a token for 8 × 8 pixels\n")
}

// A run that ends before the stores are up leaves no process that no command finds.
func TestUpIsInterruptedBeforeTheStoresAreUp(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "FAKE_SLOW=1h", "FAKE_DEAF=1")
	ctx, cancel := context.WithCancel(t.Context())
	seen := &watchWriter{want: "etcd embedded starting", then: cancel}
	r := m.with(ctx, options{stderr: seen}, "up", "--port", "0", "--progress", "plain")
	if r.code != exit.Interrupted {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", seen.text(), "dynctl: interrupted: what it had started was stopped again: node-1\n  try: dynctl up\n")
	if left := m.running(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Processes whose stores are not up yet are found.
func TestAStartingClusterIsFound(t *testing.T) {
	m := newMachine(t)
	n, err := m.cluster().Node("node-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	l, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	r := m.run("ps")
	if r.code != exit.Unreachable {
		t.Errorf("exit %d", r.code)
	}
	clitest.Has(t, "stderr", r.stderr, "cluster lab does not say yet where its store is", fmt.Sprintf("running here: node-1 (process %d)", os.Getpid()), "dynctl down")
}

// watchWriter calls then once it has seen what it wants.
type watchWriter struct {
	mu   sync.Mutex
	b    bytes.Buffer
	want string
	// count is the number of times it must see that, at least one.
	count int
	then  func()
	once  sync.Once
}

func (w *watchWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	if strings.Count(w.b.String(), w.want) >= max(w.count, 1) {
		w.once.Do(w.then)
	}
	return len(p), nil
}

func (w *watchWriter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func TestUpEndsWithAWorkerThatFails(t *testing.T) {
	m := newMachine(t)
	m.env = append(m.env, "FAKE_WORKER_FAIL=worker-2=not enough memory: 4096 KV blocks need 9.4 GiB, 3.1 GiB are free")
	r := m.run("up", "--port", "0", "--decode", "2")
	if r.code != exit.Failed {
		t.Errorf("exit %d", r.code)
	}
	clitest.Matches(t, "stderr", r.stderr, `\n  it failed \d+ times; its agent`)
	clitest.Has(t, "stderr", r.stderr, "worker-2 decode cpu0 2c failed: not enough memory",
		"dynctl: worker-2 did not start: not enough memory: 4096 KV blocks need 9.4 GiB, 3.1 GiB are free\n", "times; its agent goes on trying\n  try: dynctl up --decode 1\n   or: dynctl up --kv-blocks 2048\n   or: dynctl logs worker-2\n")
	// What is running can be changed as the message says.
	r = m.run("up", "--decode", "1")
	if r.code != 0 {
		t.Errorf("up --decode 1: exit %d\n%s", r.code, r.stderr)
	}
	m.run("down")
}

func TestFreePort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	busy, _ := strconv.Atoi(port)
	if got := up.FreePort(busy); got <= busy {
		t.Errorf("freePort(%d) = %d", busy, got)
	}
}
