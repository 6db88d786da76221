package dynamod

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
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
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/statedir"
	"github.com/dynctl/dynctl/internal/store"
)

// The test binary is dynamod when this is set.
const asDynamod = "TEST_AS_DYNAMOD"

func TestMain(m *testing.M) {
	if os.Getenv(asDynamod) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const long = time.Minute

// process is a dynamod that runs.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	state          string
	stdout, stderr patience.Buffer
	ended          chan error
	code           int // of the exit, once ended
}

// start runs dynamod with an environment of its own.
func start(t *testing.T, state string, args ...string) *process {
	t.Helper()
	p := &process{t: t, state: state, cmd: exec.Command(os.Args[0], args...), ended: make(chan error, 1)}
	p.cmd.Dir = t.TempDir() // no configuration file is found by accident
	p.cmd.Env = []string{asDynamod + "=1", "HOME=" + p.cmd.Dir, "DYNAMOD_STATE_DIR=" + state, "PATH=" + os.Getenv("PATH")}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := orphan.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait()
	})
	return p
}

// node starts a node with free ports everywhere and waits until it is up.
func node(t *testing.T, state string) (*process, cluster.Node) {
	t.Helper()
	p := start(t, state, "--etcd-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--frontend-port", "0", "--cpu-cores", "1")
	return p, p.up()
}

// up waits until the node has published itself.
func (p *process) up() cluster.Node {
	p.t.Helper()
	c, err := statedir.Open(p.state, "local")
	if err != nil {
		p.t.Fatal(err)
	}
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-p.ended:
			p.t.Fatalf("dynamod ended: %v\n%s", err, p.stderr.String())
		default:
		}
		e, err := c.Endpoints()
		if err != nil {
			continue
		}
		secret, err := credentials.Load(c.SecretPath())
		if err != nil {
			p.t.Fatal(err)
		}
		s, err := dial.Etcd(config.EtcdClient{}, e.Etcd, dial.Identity{User: "test", Secret: secret}, slog.New(slog.DiscardHandler))
		if err != nil {
			p.t.Fatal(err)
		}
		defer s.Close()
		kvs, _, err := s.List(p.t.Context(), cluster.NodePrefix)
		if err != nil || len(kvs) != 1 {
			p.t.Fatalf("%d nodes: %v", len(kvs), err)
		}
		n, err := store.DecodeJSON[cluster.Node](kvs[0])
		if err != nil {
			p.t.Fatal(err)
		}
		return n
	}
	p.t.Fatalf("dynamod is not up\n%s", p.stderr.String())
	return cluster.Node{}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case err := <-p.ended:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			p.code = exit.ExitCode()
		} else if err != nil {
			p.t.Errorf("wait: %v", err)
		}
		p.ended <- nil // for the next one
	case <-time.After(long):
		p.t.Fatalf("dynamod does not end\n%s", p.stderr.String())
	}
	return p.code
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", "node:\n  name: gpu-7\n")
	badFile := file("bad.yaml", "node:\n  naem: gpu-7\n")
	for _, tc := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"version", []string{"--version"}, 0, "dynamod version ", ""},
		{"version, as dynctl has it", []string{"version"}, 0, "VERSION  ", ""},
		{"version as JSON", []string{"version", "-o", "json"}, 0, `"platform":"`, ""},
		{"version in no form", []string{"version", "-o", "xml"}, 2, "", `--output: "xml" is not text or json`},
		{"completion", []string{"completion", "bash"}, 0, "__start_dynamod", ""},
		{"completion of no shell", []string{"completion"}, 2, "", "name a shell: bash, zsh, fish or powershell"},
		{"completion of another shell", []string{"completion", "tcsh"}, 2, "", `unknown command "tcsh"`},
		{"flags are completed", []string{"__complete", "--frontend-p"}, 0, "--frontend-port", "Completion ended"},
		{"help", []string{"--help"}, 0, "--check-config", ""},
		{"check", []string{"--check-config"}, 0, "configuration is valid (no file, defaults and environment)\n", ""},
		{"check a file", []string{"--check-config", "--config", good}, 0, "configuration is valid (" + good + ")\n", ""},
		{"check a bad file", []string{"--check-config", "--config", badFile}, 2, "", "naem"},
		{"no such file", []string{"--config", filepath.Join(dir, "missing.yaml")}, 2, "", "no such configuration file"},
		{"unknown flag", []string{"--fast"}, 2, "", "unknown flag: --fast"},
		{"bad value", []string{"--frontend-port", "70000"}, 2, "", "frontend"},
		{"not a number", []string{"--frontend-port", "x"}, 2, "", "frontend-port"},
		{"values that contradict each other", []string{"--etcd-mode", "external"}, 2, "", "etcd.endpoints"},
		{"stray argument", []string{"start"}, 2, "", `unknown command "start"`},
		{"a command of dynlab", []string{"bench", "all", "--quick"}, 2, "", "bench is a command of dynlab: run dynlab bench all --quick"},
		{"another one", []string{"gpu-check", "--help"}, 2, "", "run dynlab gpu-check --help"},
		{"reserved namespace", []string{"--namespace", "nodes"}, 2, "", "namespace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, t.TempDir(), tc.args...)
			if code := p.wait(); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if out := p.stdout.String(); !strings.Contains(out, tc.stdout) || tc.stdout == "" && out != "" {
				t.Errorf("stdout %q, want %q", out, tc.stdout)
			}
			errText := p.stderr.String()
			if !strings.Contains(errText, tc.stderr) || tc.stderr == "" && errText != "" || tc.code != 0 && !strings.HasPrefix(errText, "dynamod: ") {
				t.Errorf("stderr %q, want %q", errText, tc.stderr)
			}
		})
	}
}

// An answer that cannot be written is a failure, whichever command gives it.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"--help"}, {"--version"}, {"--check-config"}, {"gpus"}} {
		cmd := exec.Command(os.Args[0], args...)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), full, &stderr
		cmd.Env = []string{asDynamod + "=1", "HOME=" + cmd.Dir}
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || stderr.String() != "dynamod: cannot write the output: no space left on device\n" {
			t.Errorf("dynamod %s: exit %d: %s", args, code, stderr.String())
		}
	}
}

// What keeps a node from coming up is exit code 1 and one sentence.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	state := t.TempDir()
	p := start(t, state, "--etcd-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--frontend-port", port)
	if code := p.wait(); code != exitFailed || !strings.Contains(p.stderr.String(), "\ndynamod: frontend 127.0.0.1:"+port) {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	file := filepath.Join(state, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p = start(t, file)
	if code := p.wait(); code != exitFailed || !strings.HasPrefix(p.stderr.String(), "dynamod: create state directory: ") {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}

func TestSignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			p, n := node(t, state)
			if n.PID != p.cmd.Process.Pid {
				t.Errorf("the node is process %d, want %d", n.PID, p.cmd.Process.Pid)
			}
			// Nobody else takes the node while it runs.
			second := start(t, state)
			if code := second.wait(); code != exitFailed || !strings.Contains(second.stderr.String(), fmt.Sprintf("node node-1 of cluster local is running already, as process %d", n.PID)) {
				t.Errorf("a second one: exit code %d: %s", code, second.stderr.String())
			}
			p.signal(s)
			if code := p.wait(); code != exitOK {
				t.Errorf("exit code %d: %s", code, p.stderr.String())
			}
			if log := p.stderr.String(); !strings.Contains(log, "signal "+s.String()) {
				t.Errorf("the log does not name the signal: %s", log)
			}
			left(t, state)
		})
	}
}

// left fails for what a stopped node must not leave.
func left(t *testing.T, state string) {
	t.Helper()
	c, _ := statedir.Open(state, "local")
	if nodes, err := c.Nodes(); err != nil || len(nodes) != 0 {
		t.Errorf("locks are left: %v %v", nodes, err)
	}
	if _, err := os.Stat(filepath.Join(c.Path, "cluster.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cluster.json is left: %v", err)
	}
}

// A signal waits for requests in flight; a second one does not.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p, n := node(t, state)
	// A request whose body never comes is in flight for as long as the test wants, from
	// when the server asks for the body.
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.FrontendURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("%q: %v", line, err)
	}
	p.signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		t.Fatalf("it did not wait for the request: %v\n%s", err, p.stderr.String())
	case <-time.After(time.Second):
	}
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %s after the second signal", took)
	}
	left(t, state)
}

// Killed without a goodbye, it starts again on what it left.
func TestStartAfterAKill(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	p, first := node(t, state)
	p.signal(syscall.SIGKILL)
	<-p.ended
	p.ended <- nil
	p, second := node(t, state)
	if second.ID != first.ID || second.Incarnation == first.Incarnation {
		t.Errorf("first %+v, second %+v", first, second)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	left(t, state)
}

// Variables of Dynamo that have no effect are named before anything starts.
func TestCheckWarns(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "--check-config")
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &stdout, &stderr
	cmd.Env = []string{asDynamod + "=1", "HOME=" + cmd.Dir, "DYN_KEY_VALUE_STORE=mem", "DYN_LORA_ENABLED=true", "DYN_REQUEST_PLANE=tcp"}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	want := "dynamod: warning: DYN_KEY_VALUE_STORE=mem is not supported: discovery.backend says where workers are found\n" +
		"dynamod: warning: DYN_LORA_ENABLED is not used: the built-in engine has no adapters (LoRA), and servers of other engines tell theirs\n"
	if stderr.String() != want || !strings.HasPrefix(stdout.String(), "configuration is valid") {
		t.Errorf("got %q and %q", stdout.String(), stderr.String())
	}
}

// What the configuration sets is published with its origin; defaults are not.
func TestOwnSettings(t *testing.T) {
	_, origins, err := config.LoadDynamod(config.Input{Environ: []string{"HOME=" + t.TempDir(), "DYN_ROUTER_MODE=round_robin", "DYNAMOD_FRONTEND_PORT=1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cluster.NodeSetting{"router.policy": {Value: "round-robin", Origin: "DYN_ROUTER_MODE"}}
	if got := own(origins); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// In the background, where dynctl keeps standard error in a file of the node, only errors go
// there: the log proper is kept within bounds beside it. Any other file gets everything.
func TestTerminalHandler(t *testing.T) {
	cfg, _, err := config.LoadDynamod(config.Input{Environ: []string{"HOME=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Node(cfg.Node.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	background, err := os.Create(n.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer background.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, tc := range []struct {
		name string
		to   *os.File
		info bool
	}{{"background", background, false}, {"file", f, true}, {"pipe", w, true}} {
		h := terminalHandler(cfg, tc.to)
		if got := h.Enabled(t.Context(), slog.LevelInfo); got != tc.info || !h.Enabled(t.Context(), slog.LevelError) {
			t.Errorf("%s: info %t, want %t", tc.name, got, tc.info)
		}
	}
}
