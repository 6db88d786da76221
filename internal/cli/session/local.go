package session

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/statedir"
)

// External reports whether the stores are configured rather than found.
func (s *Session) External() bool {
	return len(s.Config.Etcd.Endpoints) > 0 || s.Config.Discovery.InKubernetes()
}

// Stores says which configured store the cluster has.
func (s *Session) Stores() string {
	if s.Config.Discovery.InKubernetes() {
		return "Kubernetes namespace: " + cmp.Or(s.Config.Kubernetes.Namespace, "that of the kubeconfig")
	}
	addrs := s.Config.Etcd.Endpoints
	if bucket, ok := config.StoreBucket(addrs); ok {
		return "bucket " + bucket + " of " + s.Config.NATS.URL
	}
	if dir, ok := config.StoreDir(addrs); ok {
		return "files in " + dir
	}
	return "etcd: " + strings.Join(addrs, ", ")
}

// StartNode is the command that starts a node of the cluster: here, or where its stores are
// elsewhere, on each machine that shall have one.
func (s *Session) StartNode() string {
	if !s.External() {
		return "dynctl up"
	}
	if s.Config.Discovery.InKubernetes() {
		return "kubectl scale statefulset NAME --replicas=N"
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
		if bucket, ok := config.StoreBucket(s.Config.Etcd.Endpoints); ok {
			b.WriteString(" --discovery-backend " + config.BackendNATS)
			if bucket != s.Config.Discovery.Bucket || s.Origins.Set("discovery.bucket") {
				b.WriteString(" --discovery-bucket " + bucket)
			}
		} else {
			b.WriteString(" --etcd-endpoints " + strings.Join(s.Config.Etcd.Endpoints, ","))
		}
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

// Startable is the error of a command that starts a cluster here whose state would be another
// one than the cluster had.
func (s *Session) Startable() error { return s.otherBackend }

// Adopt takes over what holds the state of the cluster of this machine, or how to reach a
// cluster that this machine has joined, unless one of its name runs here or addresses are
// configured.
func (s *Session) Adopt() error {
	if s.External() {
		return nil
	}
	if d := s.Config.Discovery; d.InNATS() && s.Config.NATS.URL != "" {
		s.Config.Etcd.Endpoints = []string{config.SchemeBucket + d.Bucket}
		return nil
	}
	local, err := s.Local()
	if err != nil {
		return err
	}
	_, here, err := local.Backend()
	if err != nil {
		return &exit.Failure{Action: "cannot reach " + local.Name, Err: err}
	}
	s.otherBackend = dial.Remember(&s.Config.Discovery, s.Origins.Set("discovery.backend"), local)
	if _, err := local.Endpoints(); !errors.Is(err, statedir.ErrNotRunning) || here {
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
