package worker

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cma"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

func init() {
	exploreTransports = append(exploreTransports,
		func(*world) func() nixl.Transport {
			pool := fenced.NewPool(0)
			return func() nixl.Transport { return shm.New(pool, fenced.Options{}) }
		},
		func(*world) func() nixl.Transport {
			pool := fenced.NewPool(0)
			return func() nixl.Transport { return cma.New(pool, fenced.Options{}) }
		})
}
