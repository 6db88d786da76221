package dynamod

import (
	"errors"
	"fmt"
	"io"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/statedir"
)

// meeting is a cluster that this run joins with a token; nil if there is none.
type meeting struct {
	local statedir.Cluster
	token credentials.Token
}

// meet sets, in cfg, how to reach the cluster that the node joins, or has joined before.
// It keeps configured values.
func meet(cfg *config.Dynamod, origins *config.Origins, stdin io.Reader) (*meeting, error) {
	var m *meeting
	if cfg.Join != "" {
		for _, key := range []string{"etcd.endpoints", "nats.url", "etcd.mode", "nats.mode", "secret_file", "discovery.backend", "discovery.dir", "discovery.bucket"} {
			if v, _ := origins.Of(key); origins.Set(key) {
				return nil, fmt.Errorf("%s (%s) and a join token: choose one, the token contains the addresses of the cluster", key, v.Origin)
			}
		}
		text, err := credentials.ReadToken(cfg.Join.Reveal(), stdin)
		if err != nil {
			return nil, err
		}
		m = &meeting{}
		if m.token, err = credentials.ParseToken(text); err != nil {
			return nil, err
		}
		if !origins.Set("cluster") && m.token.Cluster != "" {
			cfg.Cluster = m.token.Cluster
		}
	}
	local, err := statedir.Open(cfg.StateDir, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	node, err := local.Node(cfg.Node.Name)
	if err != nil {
		return nil, err
	}
	if m == nil && len(cfg.Etcd.Endpoints) == 0 && (!cfg.Discovery.InNATS() || !cfg.NATS.External()) {
		if err := dial.Remember(&cfg.Discovery, origins.Set("discovery.backend"), local); err != nil {
			return nil, err
		}
	}
	var j statedir.Joined
	switch {
	case m != nil && node.HasEtcd():
		return nil, cannotJoin(node.Name, "etcd", node.EtcdDir())
	case m != nil && node.HoldsState(local):
		return nil, cannotJoin(node.Name, "NATS", node.NATSDir())
	case m != nil:
		m.local = local
		j = statedir.Joined{Namespace: m.token.Namespace, Etcd: m.token.Etcd, NATS: m.token.NATS}
	case cfg.Discovery.InFiles() || cfg.Discovery.InNATS() || cfg.Discovery.InKubernetes() || len(cfg.Etcd.Endpoints) > 0 || cfg.Etcd.Mode == config.ModeEmbedded || node.HasEtcd():
		return nil, nil
	default:
		if j, err = local.Joined(); errors.Is(err, statedir.ErrNotJoined) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	cfg.Discovery, cfg.Etcd.Endpoints = config.DiscoveryAt(j.Etcd)
	if cfg.NATS.URL == "" && cfg.NATS.Mode != config.ModeEmbedded {
		cfg.NATS.URL = j.NATS
	}
	if !origins.Set("namespace") {
		cfg.Namespace = j.Namespace
	}
	return m, nil
}

// cannotJoin refuses a token for a node that holds the state of a cluster, perhaps of the very
// one that the token is for: it would wait for itself.
func cannotJoin(name, store, dir string) error {
	return fmt.Errorf("node %s cannot join a cluster: it has the %s of one, with data in %s; if the token is for that cluster, start the node without it; "+
		"else choose another --node-name or --cluster, or remove that directory", name, store, dir)
}

// join stores the token's contents for later runs.
func (m *meeting) join() error {
	if m == nil {
		return nil
	}
	return m.local.Join(m.token)
}
