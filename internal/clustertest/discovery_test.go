package clustertest_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// The way of a user with the real programs where files or NATS hold the shared state: no etcd
// runs, and everything works as with one. What holds the state is chosen once.
func TestProgramsWithoutEtcd(t *testing.T) {
	t.Parallel()
	for backend, says := range map[string]struct{ up, doctor string }{
		"file": {"store files ready", "store\tok\tfiles in "},
		"nats": {"store nats ready", "store\tok\tNATS, bucket dynctl"},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			programsOn(t, backend, says.up, says.doctor)
		})
	}
}

func programsOn(t *testing.T, backend, upSays, doctorSays string) {
	p := buildPrograms(t)
	plain := p.env
	p.env = append(slices.Clone(plain), "DYN_DISCOVERY_BACKEND="+backend)
	up := []string{"up", "--prefill", "1", "--decode", "2", "--agents", "2", "--port", strconv.Itoa(p.port)}
	if out := p.must(0, up...); !strings.Contains(out, upSays) || strings.Contains(out, "etcd") {
		t.Errorf("up: %s", out)
	}
	p.env = plain // it is remembered
	question := strings.Repeat("tell me what moves between the workers ", 20)
	want, err := p.ask(question, 12)
	if err != nil || want == "" {
		t.Fatalf("first answer: %q %v", want, err)
	}
	nodes := p.nodes()
	if len(nodes) != 2 || nodes[0].EmbeddedEtcd || nodes[1].EmbeddedEtcd || !nodes[0].EmbeddedNATS {
		t.Fatalf("nodes: %+v", nodes)
	}
	again := func(when string) {
		t.Helper()
		if got, err := p.ask(question, 12); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", when, got, err, want)
		}
	}
	patience.Until(t, "doctor finds nothing", func() bool { // a disk that others use at that moment answers late, which it tells
		out := p.must(0, "doctor")
		return strings.Contains(out, doctorSays) && !strings.Contains(out, "etcd")
	})
	if out := p.must(0, "top", "--once"); !strings.Contains(out, "worker-3") {
		t.Errorf("top: %s", out)
	}
	if out := p.must(0, "drain", "worker-2", "--deadline", "1m"); !strings.Contains(out, "safe to stop") {
		t.Errorf("drain: %s", out)
	}
	again("while a worker is drained")
	p.must(0, "resume", "worker-2")

	kill(t, nodes[1].PID)
	again("after the kill of a node")
	p.must(0, up...)
	if n := p.nodes(); len(n) != 2 || n[1].PID == nodes[1].PID {
		t.Errorf("nodes after up: %+v", n)
	}
	first := p.nodes()[0]
	kill(t, first.PID)
	if backend == "file" {
		if ws := p.workers(); len(ws) != 3 { // the other node and its worker are still found
			t.Errorf("after the kill of the first node: %+v", ws)
		}
	}
	p.must(0, up...)
	again("after the kill of the first node")
	for _, n := range p.nodes() {
		kill(t, n.PID)
	}
	p.must(3, "ps")
	p.env = append(slices.Clone(plain), "DYN_DISCOVERY_BACKEND=etcd")
	if out := p.must(1, up...); !strings.Contains(out, backend+" (") || !strings.Contains(out, "discovery.backend is etcd") {
		t.Errorf("up with another backend: %s", out)
	}
	p.env = plain
	p.must(0, up...)
	again("after the kill of all")

	state := strings.TrimPrefix(p.env[1], "XDG_STATE_HOME=")
	if backend == "file" {
		seenFromElsewhere(t, p, state)
	}
	if out := p.must(0, "down", "--purge", "--yes"); strings.Contains(out, "still") {
		t.Errorf("down: %s", out)
	}
	if left, err := os.ReadDir(filepath.Join(state, "dynctl", "local")); err == nil {
		t.Errorf("left behind: %v", left)
	}
}

func seenFromElsewhere(t *testing.T, p *programs, state string) {
	t.Helper()
	// Another machine that shares the directory has a state directory of its own.
	elsewhere := *p
	elsewhere.env = []string{"HOME=" + t.TempDir(), "TERM=dumb", "DYN_DISCOVERY_BACKEND=file", "DYN_FILE_KV=" + filepath.Join(state, "dynctl", "local", ".store")}
	if ws := elsewhere.workers(); len(ws) != 3 || ws[0].Role != cluster.RolePrefill {
		t.Errorf("seen from elsewhere: %+v", ws)
	}
	elsewhere.env[3] += "-none"
	elsewhere.must(3, "ps")
	if _, err := os.Stat(strings.TrimPrefix(elsewhere.env[3], "DYN_FILE_KV=")); err == nil {
		t.Error("looking for a store made one")
	}
}

// kill kills a process and waits until it has no locks any more.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience.Soon); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives on", pid)
		}
	}
}
