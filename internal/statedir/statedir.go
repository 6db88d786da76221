// Package statedir lays out the files that dynamod keeps on a machine and that
// dynctl reads there: locks, logs, the data of embedded servers, and how to reach
// a local cluster.
//
// Start with [Cluster] (all nodes of one cluster on this machine) and [Node] (the
// directory of one dynamod). Layout:
//
//	ROOT/CLUSTER/cluster.json       how to reach the cluster, while its stores run here
//	ROOT/CLUSTER/secret             what all programs of the cluster share; for its owner only
//	ROOT/CLUSTER/joined.json        how to reach the cluster, where its stores run elsewhere
//	ROOT/CLUSTER/.store/            the shared state, where files hold it
//	ROOT/CLUSTER/.backend           what holds the shared state
//	ROOT/CLUSTER/up.lock            held by dynctl while it starts dynamod processes
//	ROOT/CLUSTER/NODE/lock          held by the running dynamod; contains its pid
//	ROOT/CLUSTER/NODE/node_id       identity of the node across restarts
//	ROOT/CLUSTER/NODE/status_port   port of its status server, kept across restarts
//	ROOT/CLUSTER/NODE/dynamod.out   standard output of a dynamod in the background
//	ROOT/CLUSTER/NODE/logs/         dynamod.log and one log for each worker
//	ROOT/CLUSTER/NODE/{etcd,nats}/  data of embedded servers
//
// A lock is an advisory lock on an open file: it ends with its process, so nothing
// stale is ever left behind. The package knows nothing of what runs.
package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/ownerfile"
)

// Cluster is the directory of one cluster.
type Cluster struct {
	Path string
	Name string
}

// Node is the directory of one dynamod.
type Node struct {
	Path string
	Name string
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Open returns the directory of a cluster below root, without creating it.
func Open(root, cluster string) (Cluster, error) {
	if !nameRule.MatchString(cluster) {
		return Cluster{}, fmt.Errorf("cluster name %q: use letters, digits, dots, - and _", cluster)
	}
	return Cluster{Path: filepath.Join(root, cluster), Name: cluster}, nil
}

// Node returns the directory of a node, without creating it.
func (c Cluster) Node(name string) (Node, error) {
	if !nameRule.MatchString(name) {
		return Node{}, fmt.Errorf("node name %q: use letters, digits, dots, - and _", name)
	}
	return Node{Path: filepath.Join(c.Path, name), Name: name}, nil
}

// Nodes lists the nodes that have a directory, sorted by name.
func (c Cluster) Nodes() ([]Node, error) {
	entries, err := os.ReadDir(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state directory: %w", err)
	}
	var nodes []Node
	for _, e := range entries {
		if n := (Node{Path: filepath.Join(c.Path, e.Name()), Name: e.Name()}); e.IsDir() && n.hasLock() {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return compare(a.Name, b.Name) })
	return nodes, nil
}

// Clusters lists the clusters below root that have nodes on this machine.
func Clusters(root string) ([]Cluster, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state directory: %w", err)
	}
	var out []Cluster
	for _, e := range entries {
		c := Cluster{Path: filepath.Join(root, e.Name()), Name: e.Name()}
		if nodes, err := c.Nodes(); err == nil && len(nodes) > 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

func compare(a, b string) int {
	switch {
	case len(a) != len(b): // node-2 before node-10
		return len(a) - len(b)
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// SecretPath returns the file with the secret that all programs of the cluster share.
func (c Cluster) SecretPath() string { return filepath.Join(c.Path, "secret") }

// StoreDir returns the directory of the shared state, where files hold it and no other
// directory is configured. No node has such a name.
func (c Cluster) StoreDir() string { return filepath.Join(c.Path, ".store") }

// LogDir returns the directory of a node's logs.
func (n Node) LogDir() string { return filepath.Join(n.Path, "logs") }

// AgentLog returns the path of dynamod's own log.
func (n Node) AgentLog() string { return filepath.Join(n.LogDir(), "dynamod.log") }

// WorkerLog returns the path of a worker's log.
func (n Node) WorkerLog(worker string) string { return filepath.Join(n.LogDir(), worker+".log") }

// Output returns the path of the file with the standard output of a dynamod in the
// background.
func (n Node) Output() string { return filepath.Join(n.Path, "dynamod.out") }

// EtcdDir returns the data directory of the embedded etcd server.
func (n Node) EtcdDir() string { return filepath.Join(n.Path, etcdName) }

const etcdName = "etcd"

// NATSDir returns the data directory of the embedded NATS server.
func (n Node) NATSDir() string { return filepath.Join(n.Path, "nats") }

// Create makes the directory and checks that it can be written to.
func (n Node) Create() error {
	if err := os.MkdirAll(n.LogDir(), 0o700); err != nil {
		return fmt.Errorf("create state directory: %w", err)
	}
	probe, err := os.CreateTemp(n.Path, ".probe-")
	if err != nil {
		return fmt.Errorf("write to state directory: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (n Node) idPath() string { return filepath.Join(n.Path, "node_id") }

// ID returns the identity of the node. At first use it calls fresh to make one, and
// stores it.
func (n Node) ID(fresh func() string) (string, error) {
	path := n.idPath()
	b, err := os.ReadFile(path)
	if err == nil && nameRule.MatchString(string(b)) {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node id: %w", err)
	}
	id := fresh()
	if err := ownerfile.Replace(path, []byte(id)); err != nil {
		return "", fmt.Errorf("write node id: %w", err)
	}
	return id, nil
}

// SetNamespace stores the namespace that the node's dynamod runs for.
func (n Node) SetNamespace(namespace string) error {
	if err := ownerfile.Replace(filepath.Join(n.Path, "namespace"), []byte(namespace)); err != nil {
		return fmt.Errorf("write the node's namespace: %w", err)
	}
	return nil
}

// Namespace returns the namespace that the node's dynamod runs for, or ran for last;
// empty if it is unknown.
func (n Node) Namespace() string {
	b, err := os.ReadFile(filepath.Join(n.Path, "namespace"))
	if err != nil {
		return ""
	}
	return string(b)
}

// SetStatusPort stores the port of the node's status server.
func (n Node) SetStatusPort(port string) error {
	if err := ownerfile.Replace(filepath.Join(n.Path, "status_port"), []byte(port)); err != nil {
		return fmt.Errorf("write the port of the status server: %w", err)
	}
	return nil
}

// StatusPort returns the port that the node's status server has, or had last; empty if it is
// unknown.
func (n Node) StatusPort() string {
	b, err := os.ReadFile(filepath.Join(n.Path, "status_port"))
	if err != nil {
		return ""
	}
	return string(b)
}

// Endpoints holds the addresses of a cluster whose stores run on this machine.
type Endpoints struct {
	Cluster   string   `json:"cluster"`
	Namespace string   `json:"namespace"`
	Etcd      []string `json:"etcd"` // host:port, or file:///DIR or bucket://NAME where files or NATS hold the state
	NATS      string   `json:"nats"` // URL
	// Host is the host name or address at which other machines reach servers in the
	// node's process; empty if only this machine reaches them.
	Host      string    `json:"host,omitempty"`
	Node      string    `json:"node"` // the node that wrote it
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
}

func (c Cluster) endpointsPath() string { return filepath.Join(c.Path, "cluster.json") }

// WriteEndpoints publishes the addresses of the cluster for programs on this machine.
func (c Cluster) WriteEndpoints(e Endpoints) error {
	body, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	if err := ownerfile.Replace(c.endpointsPath(), append(body, '\n')); err != nil {
		return fmt.Errorf("write cluster.json: %w", err)
	}
	return nil
}

// ErrNotRunning is returned when no local cluster of that name runs.
var ErrNotRunning = errors.New("cluster is not running on this machine")

// Endpoints reads the addresses of the local cluster. It returns ErrNotRunning if there
// are none, or if the dynamod that wrote them no longer runs.
func (c Cluster) Endpoints() (Endpoints, error) {
	var e Endpoints
	body, err := os.ReadFile(c.endpointsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return e, ErrNotRunning
	}
	if err != nil {
		return e, fmt.Errorf("read cluster.json: %w", err)
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read %s: %w", c.endpointsPath(), err)
	}
	node, err := c.Node(e.Node)
	if err != nil {
		return e, fmt.Errorf("read %s: %w", c.endpointsPath(), err)
	}
	if pid, held := node.Holder(); !held || pid != e.PID {
		return e, ErrNotRunning
	}
	return e, nil
}

// RemoveEndpoints removes the addresses that WriteEndpoints published. It is not an error
// if there are none.
func (c Cluster) RemoveEndpoints() error {
	err := os.Remove(c.endpointsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
