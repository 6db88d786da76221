package agent

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// hostPeers makes the transports to workers in other processes of this host.
type hostPeers struct{ pool *shm.Pool }

func newHostPeers() hostPeers { return hostPeers{pool: shm.NewPool(copies)} }

func (p hostPeers) transports() []nixl.Transport {
	return []nixl.Transport{p.pool.Transport(shm.Options{})}
}
