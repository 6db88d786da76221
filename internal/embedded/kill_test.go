package embedded_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/orphan"
)

// startProcess serves in a child process and returns where, and how to kill it.
func startProcess(t *testing.T, kind, dir, addr string) (at string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envKind+"="+kind, envDir+"="+dir, envAddr+"="+addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("child process: %v", err)
	}
	return strings.TrimSpace(line), kill
}

func TestEtcdSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	at, kill := startProcess(t, "etcd", dir, "127.0.0.1:0")
	put(t, at, "k", "v")

	// While it lives, nobody else gets its directory.
	ctx := deadline(t)
	start := time.Now()
	_, err := embedded.StartEtcd(ctx, testEtcd(t, embedded.EtcdOptions{Dir: dir}))
	if !errors.Is(err, embedded.ErrDirInUse) {
		t.Errorf("second server on the directory: got %v, want %v", err, embedded.ErrDirInUse)
	}
	t.Logf("after %s: %v", time.Since(start), err)

	// A server that comes while its predecessor is being killed waits for it.
	time.AfterFunc(200*time.Millisecond, kill)
	e := startEtcd(t, embedded.EtcdOptions{Dir: dir, ClientAddr: at})
	wantValue(t, e.Endpoint(), "k", "v")
}

func TestNATSSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	at, kill := startProcess(t, "nats", dir, "127.0.0.1:0")
	js := dialJetStream(t, at)
	stream := jetstream.StreamConfig{Name: "q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy}
	if _, err := js.CreateStream(deadline(t), stream); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(deadline(t), "q.a", []byte("v")); err != nil {
		t.Fatal(err)
	}
	kill()

	n := startNATS(t, embedded.NATSOptions{Dir: dir, Addr: strings.TrimPrefix(at, "nats://")})
	wantQueued(t, n.URL(), 1)
}

func dialJetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func wantQueued(t *testing.T, url string, want uint64) {
	t.Helper()
	s, err := dialJetStream(t, url).Stream(deadline(t), "q")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().State.Msgs; got != want {
		t.Errorf("queued messages: got %d, want %d", got, want)
	}
}

func TestEtcdRefusesCorruptData(t *testing.T) {
	dir := t.TempDir()
	first := startEtcd(t, embedded.EtcdOptions{Dir: dir})
	put(t, first.Endpoint(), "k", "v")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(dir, "member", "snap", "db")
	if err := os.WriteFile(db, []byte(strings.Repeat("not a database ", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := testEtcd(t, embedded.EtcdOptions{Dir: dir})
	opts.Log = discard
	e, err := embedded.StartEtcd(deadline(t), opts)
	if err == nil {
		e.Close()
	}
	if !errors.Is(err, embedded.ErrData) {
		t.Errorf("error: got %v, want %v", err, embedded.ErrData)
	}
	t.Log(err)
}
