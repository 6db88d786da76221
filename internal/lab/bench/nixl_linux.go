package bench

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cma"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// hostRoutes returns the transports between processes of one host, configured as in the
// agent of a node.
func hostRoutes() []route {
	pool := fenced.NewPool(1)
	both := []nixl.Op{nixl.Write, nixl.Read}
	return []route{
		{"shm", both, func() nixl.Transport { return shm.New(pool, fenced.Options{}) }},
		{"cma", both, func() nixl.Transport { return cma.New(pool, fenced.Options{}) }},
	}
}
