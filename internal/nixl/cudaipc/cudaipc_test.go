//go:build linux

package cudaipc_test

import (
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/fenced/fencedtest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
)

// TestBehavior moves memory of devices between two pretended processes.
func TestBehavior(t *testing.T) {
	nixltest.Run(t, func(t testing.TB) nixltest.Env {
		s := newPretended(t)
		return nixltest.Env{Name: cudaipc.Name, Named: s.transports, Memory: s.memory, Arenas: true}
	})
}

// own is the state of this process when it is one of two real ones.
var own = struct {
	sync.Once
	*process
	pool *fenced.Pool
}{}

// separate makes agents that reach those of other processes; all share the devices.
func separate(o fenced.Options) nixltest.Env {
	return nixltest.Env{
		Name: cudaipc.Name,
		Named: func(string) []nixl.Transport {
			return []nixl.Transport{cudaipc.New(own.pool, own.devices, nil, o)}
		},
		Memory: func(t testing.TB, a *nixl.Agent, size int) (*nixl.Region, []byte) { return own.memory(t, a, size) },
	}
}

var processes = fencedtest.Suite{Name: cudaipc.Name, Env: separate}

func startOwn(t *testing.T) {
	own.Do(func() { own.process, own.pool = newProcess(t, 7), fenced.NewPool(0) })
}

func TestChild(t *testing.T) {
	startOwn(t)
	processtest.Child(t, processes.Processes())
}

// TestProcesses kills and stops processes that have memory of a device open.
func TestProcesses(t *testing.T) {
	startOwn(t)
	processes.Run(t)
}
