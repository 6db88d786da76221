package agent

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/pvm"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// hostPeers makes the transports to workers in other processes of this host.
type hostPeers struct{ pool *fenced.Pool }

func newHostPeers(copies int) hostPeers { return hostPeers{pool: fenced.NewPool(copies)} }

func (p hostPeers) transports() []nixl.Transport {
	return []nixl.Transport{shm.New(p.pool, fenced.Options{}), pvm.New(p.pool, fenced.Options{})}
}
