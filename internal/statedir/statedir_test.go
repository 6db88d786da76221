package statedir

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/orphan"
)

func openNode(t *testing.T) (Cluster, Node) {
	t.Helper()
	c, err := Open(t.TempDir(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Node("node-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	return c, n
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "..", "a/b", ".hidden", "a b", "x\x00"} {
		if _, err := Open("/tmp", bad); err == nil {
			t.Errorf("cluster name %q is accepted", bad)
		}
		if _, err := (Cluster{}).Node(bad); err == nil {
			t.Errorf("node name %q is accepted", bad)
		}
	}
}

func TestLockExcludes(t *testing.T) {
	_, n := openNode(t)
	if pid, held := n.Holder(); held {
		t.Errorf("nobody holds the lock, Holder says %d", pid)
	}
	l, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := n.Lock(); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second lock: %v, want a LockedError with this pid", err)
	}
	if pid, held := n.Holder(); !held || pid != os.Getpid() {
		t.Errorf("Holder: %d %t", pid, held)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := n.Lock()
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

// heldByChild keeps the file of the lock open: a collected file is closed.
var heldByChild *Lock

// A lock ends with its process, however that ends.
func TestLockOfAKilledProcess(t *testing.T) {
	if dir := os.Getenv("STATEDIR_TEST_HOLD"); dir != "" {
		l, err := (Node{Path: dir}).Lock()
		if err != nil {
			t.Fatal(err)
		}
		heldByChild = l
		if err := os.WriteFile(filepath.Join(dir, "held"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // until it is killed; select{} would count as a deadlock
	}
	_, n := openNode(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockOfAKilledProcess$")
	cmd.Env = append(os.Environ(), "STATEDIR_TEST_HOLD="+n.Path)
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := os.Stat(filepath.Join(n.Path, "held")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the child never took the lock")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if pid, held := n.Holder(); !held || pid != cmd.Process.Pid {
		t.Errorf("Holder: %d %t, want %d", pid, held, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	l, err := n.Lock()
	if err != nil {
		t.Fatalf("lock after the holder was killed: %v", err)
	}
	_ = l.Release()
}

func TestEndpoints(t *testing.T) {
	c, n := openNode(t)
	if _, err := c.Endpoints(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("nothing written: %v", err)
	}
	want := Endpoints{Cluster: "lab", Etcd: []string{"127.0.0.1:2379"}, NATS: "nats://x", Node: "node-1", PID: os.Getpid()}
	if err := c.WriteEndpoints(want); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Endpoints(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("left behind by a dead process: %v", err)
	}
	l, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	got, err := c.Endpoints()
	if err != nil || got.NATS != want.NATS || got.Etcd[0] != want.Etcd[0] {
		t.Errorf("got %+v %v", got, err)
	}
	nodes, err := c.Nodes()
	if err != nil || len(nodes) != 1 || nodes[0].Name != "node-1" {
		t.Errorf("nodes %v %v", nodes, err)
	}
	if err := c.RemoveEndpoints(); err != nil {
		t.Fatal(err)
	}
}

func TestNodeIDStays(t *testing.T) {
	_, n := openNode(t)
	id, err := n.ID(func() string { return "first" })
	if err != nil || id != "first" {
		t.Fatalf("%q %v", id, err)
	}
	if id, err = n.ID(func() string { return "second" }); err != nil || id != "first" {
		t.Errorf("%q %v, want the first id again", id, err)
	}
}

func TestStartLockWaits(t *testing.T) {
	c, _ := openNode(t)
	l, err := c.LockStart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.LockStart(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second start: %v, want to wait until the deadline", err)
	}
	got := make(chan error, 1)
	go func() {
		l2, err := c.LockStart(t.Context())
		if err == nil {
			err = l2.Release()
		}
		got <- err
	}()
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ := Open(file, "lab")
	n, _ := c.Node("node-1")
	if err := n.Create(); err == nil {
		t.Error("a state directory below a file is accepted")
	}
}
