package clustertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

// programs are the two real programs, built from this tree, in a state directory
// of their own.
type programs struct {
	t    *testing.T
	bin  string
	env  []string
	port int
}

func buildPrograms(t *testing.T) *programs {
	t.Helper()
	if patience.RaceDetector {
		t.Skip("the programs are built without the race detector")
	}
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	p := &programs{t: t, bin: bin, port: freePort(t)}
	// Nothing of the machine's own clusters may be seen or touched.
	home := t.TempDir()
	p.env = []string{"HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(home, "state"), "PATH=" + os.Getenv("PATH"), "TERM=dumb"}
	t.Cleanup(func() {
		out, code := p.run("down", "--deadline", "0", "--yes")
		if code != 0 {
			t.Errorf("down at the end: exit %d\n%s", code, out)
		}
	})
	return p
}

// unbuild ends and removes the programs that binaries has built; TestMain calls it.
var unbuild = func() {}

// binaries builds dynctl and dynamod once for all tests and returns their directory.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dynctl-programs-")
	if err != nil {
		return "", err
	}
	// What dynctl starts shall outlive it, but not the tests, however they end.
	sweep, err := orphan.Sweep(dir)
	if err != nil {
		return "", err
	}
	unbuild = func() {
		sweep()
		_ = os.RemoveAll(dir) // below the directory for temporary files in any case
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+"/", "./cmd/dynctl", "./cmd/dynamod")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

// freePort is a port below those that the system gives to whoever asks for any, so that it
// stays free until a program takes it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// run runs dynctl and returns what it printed, standard error last, and its code.
func (p *programs) run(args ...string) (string, int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "dynctl"), args...)
	cmd.Env = p.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		p.t.Fatalf("dynctl %s did not end: %s%s", strings.Join(args, " "), stdout.String(), stderr.String())
	}
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		p.t.Fatalf("dynctl %s: %v", strings.Join(args, " "), err)
	}
	return stdout.String() + stderr.String(), cmd.ProcessState.ExitCode()
}

// must runs dynctl and fails the test unless it ends with code.
func (p *programs) must(code int, args ...string) string {
	p.t.Helper()
	out, got := p.run(args...)
	if got != code {
		p.t.Fatalf("dynctl %s: exit %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

func (p *programs) workers() []cluster.Worker {
	p.t.Helper()
	out := p.must(0, "ps", "-o", "json")
	var ws []cluster.Worker
	if err := json.Unmarshal([]byte(out), &ws); err != nil {
		p.t.Fatalf("ps -o json: %v\n%s", err, out)
	}
	return ws
}

func (p *programs) nodes() []cluster.Node {
	p.t.Helper()
	out := p.must(0, "ps", "--nodes", "-o", "json")
	var ns []cluster.Node
	if err := json.Unmarshal([]byte(out), &ns); err != nil {
		p.t.Fatalf("ps --nodes -o json: %v\n%s", err, out)
	}
	return ns
}

// ask sends one chat request and returns the text.
func (p *programs) ask(question string, tokens int) (string, error) {
	text, _, err := p.identified(question, tokens)
	return text, err
}

// identified is ask with the id that the frontend gave the request.
func (p *programs) identified(question string, tokens int) (text, id string, err error) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"ignore_eos":true,"temperature":0,"messages":[{"role":"user","content":%q}]}`, cluster.BuiltinModelName, tokens, question)
	resp, err := http.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", p.port), "application/json", strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		Error   *struct{ Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", "", err
	}
	if answer.Error != nil || len(answer.Choices) != 1 {
		return "", "", fmt.Errorf("status %d: %+v", resp.StatusCode, answer)
	}
	return answer.Choices[0].Message.Content, resp.Header.Get("X-Request-Id"), nil
}

// The way of a user with the real programs: up, ask, look, drain, resume, scale,
// logs, a kill in the middle, down.
func TestPrograms(t *testing.T) {
	t.Parallel()
	p := buildPrograms(t)
	port := fmt.Sprint(p.port)
	if out := p.must(0, "up", "--prefill", "1", "--decode", "2", "--agents", "2", "--port", port); !strings.Contains(out, "http://127.0.0.1:"+port) || !strings.Contains(out, "curl ") || !strings.Contains(out, "knows this system") {
		t.Errorf("up does not say the URL, a curl line and what the model is:\n%s", out)
	}
	long := strings.Repeat("tell me what moves between the workers ", 20)
	want, err := p.ask(long, 12)
	if err != nil || want == "" {
		t.Fatalf("first answer: %q %v", want, err)
	}
	nodes := p.nodes()
	if len(nodes) != 2 || nodes[0].PID == nodes[1].PID || !nodes[0].EmbeddedEtcd || nodes[1].EmbeddedEtcd {
		t.Fatalf("nodes: %+v", nodes)
	}
	ws := p.workers()
	if len(ws) != 3 || ws[0].Role != cluster.RolePrefill || ws[0].Node == ws[1].Node {
		t.Fatalf("workers: %+v", ws)
	}
	var snapshot cluster.Snapshot
	if err := json.Unmarshal([]byte(p.must(0, "top", "--once", "-o", "json")), &snapshot); err != nil {
		t.Errorf("top --once -o json: %v", err)
	}
	if len(snapshot.Workers) != 3 || len(snapshot.Leases) != 5 || !snapshot.Fresh.NATSOK || snapshot.Queue.Prefill == nil {
		t.Errorf("snapshot: %d workers, %d leases, %+v, queue %+v", len(snapshot.Workers), len(snapshot.Leases), snapshot.Fresh, snapshot.Queue)
	}

	t.Run("doctor", func(t *testing.T) {
		out := p.must(0, "doctor", "--model-check", "--timeout", "1m")
		for _, pair := range []string{"recall worker-1 worker-2\tok", "recall worker-1 worker-3\tok"} {
			if !strings.Contains(out, pair) {
				t.Errorf("no %q in\n%s", pair, out)
			}
		}
	})
	t.Run("drain and resume under load", func(t *testing.T) {
		stop := make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			defer close(failed)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := p.ask(long, 12); err != nil || got != want {
					failed <- fmt.Errorf("got %q %v, want %q", got, err, want)
					return
				}
			}
		}()
		out := p.must(0, "drain", "worker-2", "--deadline", "1m")
		if !strings.Contains(out, "safe to stop") {
			t.Errorf("drain: %s", out)
		}
		if st := p.workers()[1]; st.State != cluster.StateDrained {
			t.Errorf("after the drain: %s", st.State)
		}
		p.must(0, "resume", "worker-2")
		p.must(0, "scale", "--decode", "3")
		p.must(0, "scale", "--decode", "2")
		close(stop)
		if err := <-failed; err != nil {
			t.Error(err)
		}
	})
	t.Run("unknown worker", func(t *testing.T) {
		if out := p.must(1, "drain", "worker-99"); !strings.Contains(out, "no such worker") || !strings.Contains(out, "worker-1") {
			t.Errorf("drain: %s", out)
		}
	})
	t.Run("logs", func(t *testing.T) {
		for _, w := range []string{"worker-1", "worker-2"} { // on both nodes
			if out := p.must(0, "logs", w); !strings.Contains(out, "state=ready") {
				t.Errorf("logs of %s: %s", w, out)
			}
		}
	})
	t.Run("kill -9 of the prefill node", func(t *testing.T) {
		if err := syscall.Kill(nodes[1].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got, err := p.ask(long, 12); err != nil || got != want {
			t.Errorf("after the kill: %q %v, want %q", got, err, want)
		}
		p.must(0, "up", "--prefill", "1", "--decode", "2", "--agents", "2", "--port", port) // starts the missing agent
		if n := p.nodes(); len(n) != 2 || n[1].PID == nodes[1].PID {
			t.Errorf("nodes after up: %+v", n)
		}
	})
	t.Run("kill -9 of everything, then up", func(t *testing.T) {
		for _, n := range p.nodes() {
			if err := syscall.Kill(n.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		p.must(3, "ps")
		p.must(0, "up", "--prefill", "1", "--decode", "2", "--port", port)
		if got, err := p.ask(long, 12); err != nil || got != want {
			t.Errorf("after the restart: %q %v, want %q", got, err, want)
		}
	})
	t.Run("down leaves nothing", func(t *testing.T) {
		nodes := p.nodes()
		p.must(0, "down", "--yes")
		for _, n := range nodes {
			if running(n.PID) {
				t.Errorf("process %d of %s still runs", n.PID, n.Name)
			}
		}
		state := strings.TrimPrefix(p.env[1], "XDG_STATE_HOME=")
		err := filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
			if err == nil && (d.Name() == "lock" || d.Name() == "up.lock" || d.Name() == "cluster.json" || d.Type()&os.ModeSocket != 0) {
				t.Errorf("left behind: %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil {
			t.Error("somebody still listens on the frontend's port")
		}
		p.must(3, "ps")
		p.must(0, "down")
	})
}

// running reports whether a process lives; one that only waits for its parent to
// notice does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
