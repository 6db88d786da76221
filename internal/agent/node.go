package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/undo"
)

// startRequestPlane starts the request plane's server that all workers of the node share.
func (a *Agent) startRequestPlane(back *undo.Stack) error {
	key := a.planeKey()
	var secure *tls.Config
	if a.cfg.RequestPlane.TLS {
		var err error
		if secure, err = handshake.Ephemeral(); err != nil {
			return fmt.Errorf("start the request plane: %w", err)
		}
	}
	pipes := natspipe.New(a.stores.nc, natspipe.Config{Log: a.log})
	back.Push("close the pipes over NATS", func(context.Context) error { return pipes.Close() })
	var srv requestplane.Server
	listen := a.listenAt(a.cfg.RequestPlane.Listen, config.DefaultAnyListen, requestPlanePort)
	err := a.onFixedPort("request plane", listen, a.cfg.RequestPlane.Listen, func(addr string) (err error) {
		srv, err = requestplane.Listen(cluster.Plane(a.cfg.RequestPlane.Mode), requestplane.ServerConfig{Addr: addr, Pipes: pipes, Key: key, TLS: secure, Log: a.log})
		return err
	})
	if err != nil {
		return fmt.Errorf("start the request plane: %w", err)
	}
	at, plane := cluster.SplitPlane(srv.Addr())
	if plane != cluster.PlaneNATS {
		at = a.advertise(at)
	}
	advertised := plane.Server(at)
	near := requestplane.NewMemory() // connects workers of this node without sockets
	a.server = near.Beside(srv, advertised, requestplane.Limits{}, a.log)
	back.Push("stop the request plane", func(context.Context) error { return a.server.Close() })
	a.client = near.Over(requestplane.NewClient(requestplane.ClientConfig{
		Key: key, TLS: secure, Log: a.log,
		Pipes: func() (*natspipe.Hub, error) { return pipes, nil },
	}))
	back.Push("close the request plane's connections", func(context.Context) error { return a.client.Close() })
	a.plumb = runtime.Config{
		Store: a.stores.store, Server: a.server, Client: a.client, Bus: a.stores.bus,
		Namespace: a.cfg.Namespace, AdvertiseAddr: advertised, LeaseTTL: a.cfg.LeaseTTL(),
		Node: a.nodeID, Incarnation: a.incarnation, Log: a.log,
	}
	return nil
}

// succeed ends what the previous run of this node left in the store, except the node's
// record. The record moves to the lease of this run until publishNode writes a new one.
// Without any record, a controller would move the node's workers away.
func (a *Agent) succeed(ctx context.Context) {
	key := cluster.NodeKey(a.nodeID)
	kv, err := a.stores.store.Get(ctx, key)
	if err == nil {
		_, err = a.stores.store.CompareAndSwap(ctx, key, kv.ModRevision, kv.Value, store.WithLease(a.drt.ID()))
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) { // a conflict means that it has just expired
		a.log.Warn("cannot keep the record of the previous run, the controller may move workers away", "error", err)
	}
	if n, err := runtime.RevokeStale(ctx, a.stores.store, a.cfg.Namespace, a.nodeID, a.incarnation); err != nil {
		a.log.Warn("cannot revoke the leases of the previous run, they will expire", "error", err)
	} else if n > 0 {
		a.log.Info("leases of the previous run revoked", "leases", n)
	}
}

// publishNode writes the node's inventory under its lease.
func (a *Agent) publishNode(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	gpu := a.gpus.report().Inventory()
	n := cluster.Node{
		ID: a.nodeID, Name: a.cfg.Node.Name, Namespace: a.cfg.Namespace, Host: host, PID: os.Getpid(), Incarnation: a.incarnation,
		Version: a.opts.Version, StartedAt: a.started, Devices: a.nodeDevices, GPU: &gpu,
		RequestPlane: a.plumb.AdvertiseAddr, StatusURL: a.status.scheme + a.statusAddr(),
		EmbeddedEtcd: a.stores.etcd != nil, EmbeddedNATS: a.stores.nats != nil,
		Secret: a.secret.Fingerprint(), Settings: a.opts.Settings,
	}
	for _, name := range a.cfg.Node.Roles {
		role, err := cluster.ParseRole(name)
		if err != nil {
			return fmt.Errorf("node.roles: %w", err)
		}
		n.Roles = append(n.Roles, role)
	}
	if a.front != nil {
		n.FrontendURL = a.front.URL()
	}
	a.nodeMu.Lock()
	a.node = n
	a.nodeMu.Unlock()
	a.nodeKept, err = a.drt.PutOwned(ctx, func(cluster.InstanceID) string { return cluster.NodeKey(a.nodeID) }, a.encodeNode)
	if err != nil {
		return fmt.Errorf("publish the node: %w", err)
	}
	return nil
}

// encodeNode returns the node's record under an instance id.
func (a *Agent) encodeNode(id cluster.InstanceID) []byte {
	a.nodeMu.Lock()
	defer a.nodeMu.Unlock()
	a.node.InstanceID, a.node.Alarms = id, a.alarms.texts()
	body, err := json.Marshal(a.node)
	if err != nil {
		panic(fmt.Sprintf("a node does not encode: %v", err)) // all its values encode
	}
	return body
}
