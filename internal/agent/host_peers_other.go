//go:build !linux

package agent

import (
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
)

// hostPeers makes the transports to workers in other processes of this host. On this
// system there are none beside those that reach every host.
type hostPeers struct{}

func newHostPeers(int) hostPeers { return hostPeers{} }

func (hostPeers) transports(*cudaipc.Devices, bool) []nixl.Transport { return nil }
