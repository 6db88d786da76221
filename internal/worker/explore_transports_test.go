package worker

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

// exploreTransports are the transports that are explored, each made for one cluster and
// then for each of its workers.
var exploreTransports = []func(*world) func() nixl.Transport{
	func(w *world) func() nixl.Transport { return w.peers.Transport },
	func(*world) func() nixl.Transport {
		return func() nixl.Transport { return tcp.New(tcp.Options{}) }
	},
}
