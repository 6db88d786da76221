package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/ownerfile"
)

// Joined holds the addresses of a cluster whose stores run elsewhere, from a join token.
type Joined struct {
	Namespace string   `json:"namespace"`
	Etcd      []string `json:"etcd"` // as in Endpoints
	NATS      string   `json:"nats"`
}

// ErrNotJoined is returned when this machine has not joined a cluster of that name.
var ErrNotJoined = errors.New("this machine has not joined this cluster")

// ErrOtherSecret is returned when the machine has the secret of another cluster.
var ErrOtherSecret = errors.New("this machine has the secret of another cluster")

func (c Cluster) joinedPath() string { return filepath.Join(c.Path, "joined.json") }

// Join stores the content of a token, with the secret readable only by its owner, so that
// no program on this machine needs the token again. An existing secret is kept. If it is
// another one, the error is ErrOtherSecret.
func (c Cluster) Join(t credentials.Token) error {
	got, err := credentials.Create(c.SecretPath(), t.Secret)
	if err != nil {
		return err
	}
	if got != t.Secret {
		old := c.SecretPath()
		if c.HostsEtcd() {
			old = c.Path
		}
		return fmt.Errorf("join cluster %s: %w (%s, and not %s): join under another name with --cluster NAME, or remove %s if it is no longer needed",
			c.Name, ErrOtherSecret, got, t.Secret, old)
	}
	body, err := json.MarshalIndent(Joined{Namespace: t.Namespace, Etcd: t.Etcd, NATS: t.NATS}, "", "  ")
	if err != nil {
		return err
	}
	if err := ownerfile.Replace(c.joinedPath(), append(body, '\n')); err != nil {
		return fmt.Errorf("join cluster %s: %w", c.Name, err)
	}
	return nil
}

// Joined reads the addresses that Join stored, or returns ErrNotJoined.
func (c Cluster) Joined() (Joined, error) {
	var j Joined
	body, err := os.ReadFile(c.joinedPath())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return j, ErrNotJoined
	}
	if err != nil {
		return j, fmt.Errorf("read joined.json: %w", err)
	}
	if err := json.Unmarshal(body, &j); err != nil {
		return j, fmt.Errorf("read %s: %w", c.joinedPath(), err)
	}
	if len(j.Etcd) == 0 {
		return j, fmt.Errorf("read %s: no address of etcd", c.joinedPath())
	}
	return j, nil
}

// HostsEtcd reports whether any node of the cluster on this machine has data of an
// embedded etcd.
func (c Cluster) HostsEtcd() bool {
	found, err := filepath.Glob(filepath.Join(c.Path, "*", etcdName, "member"))
	return err == nil && len(found) > 0
}

// HoldsState reports whether the NATS inside the node holds the state of the cluster.
func (n Node) HoldsState(c Cluster) bool {
	b, ok, err := c.Backend()
	_, serr := os.Stat(filepath.Join(n.NATSDir(), "jetstream"))
	return err == nil && ok && b.Name == "nats" && serr == nil
}

// HasEtcd reports whether the node has data of an embedded etcd.
func (n Node) HasEtcd() bool {
	_, err := os.Stat(filepath.Join(n.EtcdDir(), "member"))
	return err == nil
}
