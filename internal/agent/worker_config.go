package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
	"github.com/dynctl/dynctl/internal/worker"
	"github.com/dynctl/dynctl/internal/worker/media"
)

// workerConfig collects what a worker needs from this node.
// awaits is told what a worker waits for that loads.
func (a *Agent) workerConfig(as cluster.Assignment, restarts int, log *slog.Logger, awaits func(string)) worker.Config {
	load := a.models.load
	if a.opts.Load != nil {
		load = a.opts.Load
	}
	if !as.Engine.External() {
		as.Engine = a.models.engineSpec(as.Engine)
	}
	encode, err := a.cfg.Multimodal.Encode(a.cfg.Namespace)
	if err != nil {
		encode = cluster.Endpoint{} // the configuration was checked
	}
	return worker.Config{
		Encode: encode, Embeddings: media.Sizes{Cache: int64(a.cfg.Multimodal.EmbeddingCacheMB) << 20},
		Assignment: as, Namespace: a.cfg.Namespace, Node: a.nodeID, Restarts: restarts, Taints: a.cfg.Node.Taints,
		Store: a.stores.store, Bus: a.stores.bus, Queue: a.stores.queue, Runtime: a.plumb,
		NIXL: a.nixlConfig, Settings: a.settings.workers, QueueDepth: a.queue.get, Metrics: a.metrics, Log: log, Health: worker.HealthCheck(a.cfg.HealthCheck),
		Load: func(ctx context.Context, progress func(float64)) (*worker.Loaded, error) {
			if as.Engine.External() {
				return a.loadServer(ctx, as, log, awaits)
			}
			l, err := load(ctx, as, progress)
			if errors.Is(err, ErrMemory) && as.Replaces != "" && a.admit(as, as.Replaces) == nil {
				err = fmt.Errorf("%w: %w", err, errFitsAlone)
			}
			if err == nil && a.opts.Backend != nil {
				l.Backend = a.opts.Backend(as, l.Backend)
			}
			return l, err
		},
	}
}

// errFitsAlone is returned with ErrMemory if there would be room once the worker that the
// new one replaces has ended.
var errFitsAlone = errors.New("memory suffices once the replaced worker has ended")

// admit returns why a worker of this node could not start with the assignment as once the
// worker called instead has ended; see models.admit.
func (a *Agent) admit(as cluster.Assignment, instead string) error {
	switch {
	case as.Engine.External():
		return errors.Join(as.Model.Validate(), as.Engine.Validate(), a.mayStart(as.Engine.Server))
	case a.opts.Admit != nil:
		return a.opts.Admit(as, instead)
	case a.opts.Load != nil:
		return nil
	}
	return a.models.admit(as, instead)
}

// copies returns how many goroutines of a process copy at a time for transfers within a
// host. Most cores are left for computing.
func copies(cfg config.Dynamod) int {
	if n := cfg.NIXL.CopyThreads; n > 0 {
		return n
	}
	return min(max(runtime.GOMAXPROCS(0)/2, 1), 4)
}

// nixlConfig describes a NIXL agent of this process. Workers of one process copy memory.
// Workers of other processes of this host share memory; the kernel copies what cannot be
// shared, if the system allows it. All other workers are reached over RDMA, if available,
// or TCP.
func (a *Agent) nixlConfig() nixl.Config {
	listen := a.listenAt(a.cfg.NIXL.Listen, config.DefaultAnyListen, nixlPort)
	transports := append([]nixl.Transport{a.peers.Transport()}, a.hostPeers.transports(a.vram, slices.Contains(a.cfg.NIXL.Transports, cudaipc.Name))...)
	return nixl.Config{
		HostID: hostID(), Key: handshake.NewKey(a.secret.Key(nixl.KeyPurpose)),
		Transports: append(transports, ucx.New(a.ucxOptions(listen)), tcp.New(tcp.Options{
			Listen: listen, AdvertiseHost: a.advertiseHost(listen),
			Conns: a.cfg.NIXL.TCPStreams, Checksums: a.cfg.NIXL.Checksums, TLS: a.nixlTLS,
		})),
		Force: a.cfg.NIXL.Transports,
	}
}

// ucxOptions makes UCX listen on the host that accepts transfers over TCP, at its own
// port. UCX is used over RDMA; other networks only if the configuration names it.
func (a *Agent) ucxOptions(listen string) ucx.Options {
	o := ucx.Options{AnyNetwork: slices.Contains(a.cfg.NIXL.Transports, ucx.Name), AdvertiseHost: a.advertiseHost(listen)}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		o.Listen = net.JoinHostPort(host, "0")
		if name := interfaceOf(host); name != "" {
			o.Devices = []string{name}
		}
	}
	return o
}

// checkTransports returns an error if a transport that the configuration names cannot be
// used.
func (a *Agent) checkTransports() error {
	if !slices.Contains(a.cfg.NIXL.Transports, ucx.Name) {
		return nil
	}
	if err := ucx.Available(); err != nil {
		return fmt.Errorf("nixl.transports names ucx: %w", err)
	}
	return nil
}
