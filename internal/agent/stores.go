package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/undo"
)

// stores holds the node's connections to etcd and NATS, and the servers themselves if
// they run in this process.
type stores struct {
	etcd        *embedded.Etcd // nil when external
	nats        *embedded.NATS // nil when external
	addrs       []string       // of the store
	natsURL     string
	identity    dial.Identity         // of this program, for connections to servers inside a dynamod
	credentials *embedded.Credentials // of the servers in this process

	store store.Store
	nc    *events.NATS // bus, for pipes of the request plane
	bus   events.Bus
	queue events.WorkQueue
}

func startStores(ctx context.Context, a *Agent, back *undo.Stack) (*stores, error) {
	s := &stores{identity: dial.Identity{User: "dynamod", Secret: a.secret, Certs: &a.certs}}
	if err := s.makeCredentials(a); err != nil {
		return nil, err
	}
	steps := []func(context.Context, *Agent, *undo.Stack) error{s.startEtcd, s.startNATS}
	switch {
	case a.cfg.Discovery.InFiles(), a.cfg.Discovery.InKubernetes():
		steps[0] = s.openStore
	case a.cfg.Discovery.InNATS():
		steps = []func(context.Context, *Agent, *undo.Stack) error{s.startNATS, s.openStore}
	}
	for _, step := range steps {
		if err := step(ctx, a, back); err != nil {
			return nil, err
		}
	}
	return s, s.remember(a)
}

// openStore opens the store in files, in NATS or in the Kubernetes API.
func (s *stores) openStore(ctx context.Context, a *Agent, back *undo.Stack) error {
	addr, err := a.cfg.Discovery.Address(a.cluster.StoreDir())
	if err != nil {
		return err
	}
	s.addrs = []string{addr}
	stores := dial.Stores{NATS: a.cfg.NATS.NATSClient, Kubernetes: a.cfg.Kubernetes, Agent: true}
	stores.NATS.URL = s.natsURL
	opened, err := dial.Store(stores, s.addrs, s.identity, a.log)
	if err != nil {
		return err
	}
	back.Push("close the store", func(context.Context) error { return opened.Close() })
	if _, err := opened.Ping(ctx); err != nil {
		if why := dial.Diagnose(ctx, dial.Servers(s.addrs, s.natsURL), s.identity); why != nil {
			err = why
		}
		return s.unreached(a, fmt.Errorf("open the store: %w", err))
	}
	s.store = opened
	return nil
}

// unreached adds to an error of the store where its address comes from, if that is a token,
// and what to do.
func (s *stores) unreached(a *Agent, err error) error {
	if _, jerr := a.cluster.Joined(); jerr != nil {
		return err
	}
	return fmt.Errorf("%w; the join token of cluster %s says that its state is at %s: start the dynamod there, see that this machine reaches that address, "+
		"or run \"dynctl credentials --join\" there and \"dynamod --join\" here with the token that it prints", err, a.cfg.Cluster, strings.Join(dial.Servers(s.addrs, s.natsURL), ", "))
}

// remember notes what holds the state of the cluster, if that is on this machine.
func (s *stores) remember(a *Agent) error {
	_, err := a.cluster.Joined() // the cluster is elsewhere
	if err == nil || s.etcd == nil && !a.cfg.Discovery.InFiles() && !s.inEmbeddedNATS(a) {
		return nil
	}
	b, err := dial.BackendOf(a.cfg.Discovery, a.cluster)
	if err != nil {
		return err
	}
	return a.cluster.SetBackend(b)
}

// inEmbeddedNATS reports whether the NATS in this process holds the state.
func (s *stores) inEmbeddedNATS(a *Agent) bool { return s.nats != nil && a.cfg.Discovery.InNATS() }

func (s *stores) startEtcd(ctx context.Context, a *Agent, back *undo.Stack) error {
	cfg := a.cfg.Etcd
	s.addrs = cfg.Endpoints
	if !cfg.External() {
		addr := a.listenAt(cfg.Listen, config.DefaultEtcdListen, "")
		opts := embedded.EtcdOptions{Dir: a.dir.EtcdDir(), ClientAddr: addr, PeerAddr: "127.0.0.1:0", Credentials: s.credentials, Log: a.log}
		err := onFreePort(&opts.ClientAddr, cfg.Listen == config.DefaultEtcdListen, func() (err error) {
			s.etcd, err = embedded.StartEtcd(ctx, opts)
			return err
		})
		if err != nil {
			return fmt.Errorf("start embedded etcd: %w", err)
		}
		opts.ClientAddr = withPort(opts.ClientAddr, s.etcd.Endpoint()) // clients look for it there
		back.Push("stop etcd", keepServer(a.log, a.alarms, alarmEtcd, s.etcd, func(ctx context.Context) (*embedded.Etcd, error) { return embedded.StartEtcd(ctx, opts) }))
		s.addrs = []string{config.SchemeDynamod + s.etcd.Endpoint()}
	}
	etcd, err := dial.Etcd(cfg.EtcdClient, s.addrs, s.identity, a.log)
	if err != nil {
		return err
	}
	back.Push("close the etcd connection", func(context.Context) error { return etcd.Close() })
	if _, err := etcd.Ping(ctx); err != nil {
		if why := dial.Diagnose(ctx, s.addrs, s.identity); why != nil {
			err = why
		}
		return s.unreached(a, fmt.Errorf("reach etcd: %w", err))
	}
	s.store = etcd
	return nil
}

func (s *stores) startNATS(ctx context.Context, a *Agent, back *undo.Stack) error {
	cfg := a.cfg.NATS
	s.natsURL = cfg.URL
	if !cfg.External() {
		addr := a.listenAt(cfg.Listen, config.DefaultNATSListen, "")
		opts := embedded.NATSOptions{Dir: a.dir.NATSDir(), Addr: addr, Credentials: s.credentials, Durable: a.cfg.Discovery.InNATS(), Log: a.log}
		start := func(ctx context.Context) (*embedded.NATS, error) {
			n, err := embedded.StartNATS(ctx, opts)
			if err == nil {
				metrics.SetNATS(a.metrics, n.Messages)
			}
			return n, err
		}
		err := onFreePort(&opts.Addr, cfg.Listen == config.DefaultNATSListen, func() (err error) {
			s.nats, err = start(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("start embedded NATS: %w", err)
		}
		opts.Addr = withPort(opts.Addr, s.nats.Addr()) // clients look for it there
		back.Push("stop NATS", keepServer(a.log, a.alarms, alarmNATS, s.nats, start))
		s.natsURL = config.SchemeDynamod + s.nats.Addr()
	}
	bus, err := dial.NATS(cfg.NATSClient, s.natsURL, a.cfg.Node.Name, s.identity, a.log)
	if err != nil {
		return err
	}
	back.Push("close the NATS connection", func(context.Context) error { return bus.Close() })
	s.nc, s.bus = bus, bus
	s.queue, err = bus.WorkQueue(a.cfg.Namespace, events.QueueConfig{})
	if err != nil {
		return fmt.Errorf("open the prefill queue: %w", err)
	}
	return nil
}

// withPort returns addr with the port of other.
func withPort(addr, other string) string {
	host, _, _ := net.SplitHostPort(addr)
	_, port, _ := net.SplitHostPort(other)
	return net.JoinHostPort(host, port)
}

// onFreePort runs start. If the port is the default and taken, it runs start again with
// any free port, so that two clusters on one machine need no configuration. It never
// replaces a configured address.
func onFreePort(addr *string, standard bool, start func() error) error {
	err := start()
	if !errors.Is(err, embedded.ErrPortInUse) || !standard {
		return err
	}
	host, _, _ := net.SplitHostPort(*addr)
	*addr = net.JoinHostPort(host, "0")
	return start()
}
