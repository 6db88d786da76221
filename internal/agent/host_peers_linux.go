package agent

import (
	"errors"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cma"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// hostPeers makes the transports to workers in other processes of this host.
type hostPeers struct{ pool *fenced.Pool }

func newHostPeers(copies int) hostPeers { return hostPeers{pool: fenced.NewPool(copies)} }

// transports returns the transports to other processes of this host. The one between GPUs
// is included if there are devices of a driver, or if asked says so.
func (p hostPeers) transports(gpus *cudaipc.Devices, asked bool) (out []nixl.Transport) {
	if gpus != nil || asked {
		out = append(out, cudaipc.New(p.pool, gpus, errNoGPUs, fenced.Options{}))
	}
	return append(out, shm.New(p.pool, fenced.Options{}), cma.New(p.pool, fenced.Options{}))
}

var errNoGPUs = errors.New("this node offers no GPUs: gpu.devices is none")
