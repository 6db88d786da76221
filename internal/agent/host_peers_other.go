//go:build !linux

package agent

import "github.com/dynctl/dynctl/internal/nixl"

// hostPeers makes the transports to workers in other processes of this host: none
// but those that reach every host.
type hostPeers struct{}

func newHostPeers(int) hostPeers { return hostPeers{} }

func (hostPeers) transports() []nixl.Transport { return nil }
