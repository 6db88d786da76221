package ucx_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/ucx"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
)

// overTCP makes agents that reach each other over UCX's emulation of RDMA, which is
// what a machine without devices has.
func overTCP(o ucx.Options) ucx.Options {
	o.AnyNetwork, o.Devices = true, []string{"lo"}
	o.Settings = map[string]string{"TLS": "tcp"}
	return o
}

// emulated lets UCX access memory as it does with devices. A peer that dies meanwhile may
// make UCX 1.13 abort the process, so that tests end these connections in an orderly way.
func emulated(o ucx.Options) ucx.Options { return ucx.Emulated(overTCP(o)) }

func env(o ucx.Options) nixltest.Env {
	return nixltest.Env{Name: ucx.Name, Arenas: true, Transports: func() []nixl.Transport { return []nixl.Transport{ucx.New(o)} }}
}

// needUCX skips where there is no library, as on most machines.
func needUCX(t testing.TB) {
	t.Helper()
	if _, err := ucp.Load(); err != nil {
		t.Skip(err)
	}
}

func TestBehavior(t *testing.T) {
	needUCX(t)
	nixltest.Run(t, func(testing.TB) nixltest.Env { return env(overTCP(ucx.Options{})) })
}

// One-sided access, with pieces that UCX carries out itself.
func TestBehaviorOfDevices(t *testing.T) {
	needUCX(t)
	nixltest.Run(t, func(testing.TB) nixltest.Env { return env(emulated(ucx.Options{})) })
}
