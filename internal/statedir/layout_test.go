package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestListing(t *testing.T) {
	root := t.TempDir()
	if got, err := Clusters(filepath.Join(root, "missing")); got != nil || err != nil {
		t.Errorf("no root: %v %v", got, err)
	}
	c, _ := Open(root, "lab")
	if got, err := c.Nodes(); got != nil || err != nil {
		t.Errorf("no cluster: %v %v", got, err)
	}
	for _, name := range []string{"node-10", "node-2", "old"} {
		n, _ := c.Node(name)
		if err := n.Create(); err != nil {
			t.Fatal(err)
		}
		l, err := n.Lock()
		if err != nil {
			t.Fatal(err)
		}
		if name == "old" { // it stopped in order: its lock is gone
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		defer l.Release()
	}
	if err := os.MkdirAll(filepath.Join(root, "models", "tiny"), 0o700); err != nil { // not a cluster
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Path, "up.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nodes, err := c.Nodes()
	if err != nil || len(nodes) != 2 || nodes[0].Name != "node-2" || nodes[1].Name != "node-10" {
		t.Errorf("nodes %v %v", nodes, err)
	}
	clusters, err := Clusters(root)
	if err != nil || len(clusters) != 1 || clusters[0].Name != "lab" || clusters[0].Path != c.Path {
		t.Errorf("clusters %v %v", clusters, err)
	}
}

func TestPaths(t *testing.T) {
	c, n := openNode(t)
	for path, want := range map[string]string{
		n.AgentLog(): "node-1/logs/dynamod.log", n.WorkerLog("worker-7"): "node-1/logs/worker-7.log",
		n.Output(): "node-1/dynamod.out", n.EtcdDir(): "node-1/etcd", n.NATSDir(): "node-1/nats", c.endpointsPath(): "cluster.json",
	} {
		if rel, err := filepath.Rel(c.Path, path); rel != want || err != nil {
			t.Errorf("got %s %v, want %s", rel, err, want)
		}
	}
	if err := n.Create(); err != nil {
		t.Errorf("a second Create: %v", err)
	}
	entries, err := os.ReadDir(n.Path)
	if err != nil || len(entries) != 1 {
		t.Errorf("Create left %v %v", entries, err)
	}
	for _, dir := range []string{n.Path, n.LogDir()} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, others may look in: %v", dir, info.Mode(), err)
		}
	}
}

// Whoever looks whether a lock is held has it for an instant; that does not keep its
// owner from taking it.
func TestLookingDoesNotLock(t *testing.T) {
	_, n := openNode(t)
	// The lock of a killed process: the file is there, nobody holds it.
	if err := os.WriteFile(n.lockPath(), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(n.lockPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil { // as Holder does
		t.Fatal(err)
	}
	time.AfterFunc(lockRetry/2, func() { f.Close() })
	l, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func TestLockErrors(t *testing.T) {
	_, n := openNode(t)
	l, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	_, err = n.Lock()
	if err == nil || !strings.Contains(err.Error(), "is locked by process") {
		t.Errorf("got %v", err)
	}
	if err := (&LockedError{Path: "x"}).Error(); err != "x is locked by another process" {
		t.Errorf("unknown process: %q", err)
	}
	var locked *LockedError
	if _, err := (Node{Path: "/does/not/exist"}).Lock(); err == nil || errors.As(err, &locked) {
		t.Errorf("no directory: %v", err)
	}
	if pid, held := (Node{Path: "/does/not/exist"}).Holder(); held || pid != 0 {
		t.Errorf("no directory: held by %d", pid)
	}
}

func TestBadNodeID(t *testing.T) {
	_, n := openNode(t)
	path := filepath.Join(n.Path, "node_id")
	for _, bad := range []string{"", "../x", "a b", strings.Repeat("x", 100)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := n.ID(func() string { return "fresh" }); id != "fresh" || err != nil {
			t.Errorf("%q on disk: %q %v", bad, id, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if id, err := n.ID(func() string { return "fresh" }); err == nil {
		t.Errorf("a directory in place of the file: %q", id)
	}
}

func TestBadEndpoints(t *testing.T) {
	c, n := openNode(t)
	l, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	for name, body := range map[string]string{"not JSON": "{", "bad node name": `{"node":"../../etc"}`, "no node": `{}`} {
		if err := os.WriteFile(c.endpointsPath(), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Endpoints(); err == nil || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "cluster.json") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The process that wrote it is gone and another one has taken the node.
	if err := c.WriteEndpoints(Endpoints{Node: "node-1", PID: os.Getpid() + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Endpoints(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("of another process: %v", err)
	}
	for range 2 {
		if err := c.RemoveEndpoints(); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if err := (Cluster{Path: filepath.Join(c.Path, "missing")}).WriteEndpoints(Endpoints{}); err == nil {
		t.Error("written into a directory that does not exist")
	}
	left, err := filepath.Glob(filepath.Join(c.Path, ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
