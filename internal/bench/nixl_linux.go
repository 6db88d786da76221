package bench

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// hostRoutes are the transports between processes of one host, as the agent of a
// node makes them.
func hostRoutes() []route {
	pool := shm.NewPool(1)
	return []route{{"shm", []nixl.Op{nixl.Write, nixl.Read}, func() nixl.Transport { return pool.Transport(shm.Options{}) }}}
}
