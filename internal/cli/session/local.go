package session

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// External reports whether the stores are configured rather than found.
func (s *Session) External() bool { return len(s.Config.Etcd.Endpoints) > 0 }

// StartNode is the command that starts a node of the cluster: here, or where its stores are
// elsewhere, on each machine that shall have one.
func (s *Session) StartNode() string {
	if !s.External() {
		return "dynctl up"
	}
	var b strings.Builder
	b.WriteString("dynamod")
	if s.Config.Cluster != config.DefaultCluster {
		b.WriteString(" --cluster " + s.Config.Cluster)
	}
	where := "each machine that has joined"
	if !s.joined {
		where = "each node"
		if s.Named {
			b.WriteString(" --namespace " + s.Config.Namespace)
		}
		b.WriteString(" --etcd-endpoints " + strings.Join(s.Config.Etcd.Endpoints, ","))
		b.WriteString(" --nats-url " + cmp.Or(s.Config.NATS.URL, "nats://HOST:4222"))
		if s.Config.SecretFile != "" {
			b.WriteString(" --secret-file " + s.Config.SecretFile)
		}
	}
	return b.String() + " --node-name NAME --node-advertise-host ADDRESS   on " + where
}

// Local is the directory of the cluster on this machine.
func (s *Session) Local() (statedir.Cluster, error) {
	return statedir.Open(s.Config.StateDir, s.Config.Cluster)
}

// Stopped reports whether the cluster is one of this machine and does not run.
func (s *Session) Stopped() bool {
	if s.External() || s.Config.Discovery.Elsewhere() {
		return false
	}
	local, err := s.Local()
	if err != nil {
		return false // whoever connects says why
	}
	_, err = local.Endpoints()
	return errors.Is(err, statedir.ErrNotRunning)
}

// Beside reports whether the chosen namespace is another one than that for which the
// local cluster was started.
func (s *Session) Beside(e statedir.Endpoints) bool {
	return s.Named && e.Namespace != "" && e.Namespace != s.Config.Namespace
}

// RunningClusters names the clusters whose stores run on this machine.
func (s *Session) RunningClusters() []string {
	all, err := statedir.Clusters(s.Config.StateDir)
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range all {
		if _, err := c.Endpoints(); err == nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// starting names the processes of a cluster of this machine that does not say where its
// stores are.
func (s *Session) starting() []string {
	local, err := s.Local()
	if err != nil {
		return nil
	}
	nodes, err := local.Nodes()
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range nodes {
		if pid, held := n.Holder(); held {
			out = append(out, fmt.Sprintf("%s (process %d)", n.Name, pid))
		}
	}
	return out
}

// Adopt takes over how to reach a cluster that this machine has joined, unless one of its
// name runs here or endpoints are configured.
func (s *Session) Adopt() error {
	if s.External() {
		return nil
	}
	local, err := s.Local()
	if err != nil {
		return err
	}
	if _, err := local.Endpoints(); !errors.Is(err, statedir.ErrNotRunning) || local.HostsEtcd() {
		return nil // an error is for who needs them
	}
	j, err := local.Joined()
	if errors.Is(err, statedir.ErrNotJoined) {
		return nil
	}
	if err != nil {
		return &exit.Failure{Action: "cannot reach " + local.Name, Err: err, Tries: []string{"dynctl join TOKEN"}}
	}
	s.Config.Etcd.Endpoints, s.joined = j.Etcd, true
	if s.Config.NATS.URL == "" {
		s.Config.NATS.URL = j.NATS
	}
	if !s.Named {
		s.Config.Namespace, s.Named = j.Namespace, true
	}
	return nil
}
