package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
)

// A worker that is drained while the store is silent waits for it once, over all the
// steps of leaving, and then ends: its lease takes back what it could not.
func TestDrainWaitsOnceForASilentStore(t *testing.T) {
	for _, role := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		t.Run(string(role), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const patience = 2 * time.Second
				w := newWorld(t)
				d := w.start("worker-1", role, overMemory(w))
				answer := w.c.Store.FallSilent(patience)
				defer answer()
				begin := time.Now()
				d.drain(t)
				if err := <-d.ended; !errors.Is(err, ErrDrained) {
					t.Errorf("Run returned %v, want ErrDrained", err)
				}
				d.once.Do(func() {})
				if took, want := time.Since(begin), patience+drainGrace; took < patience || took > want+time.Second/2 {
					t.Errorf("left %s after the store fell silent, want about %s", took, want)
				}
			})
		})
	}
}

// overMemory has a worker reach others in this process alone, which needs no sockets.
func overMemory(w *world) func(*Config) {
	return func(c *Config) {
		c.NIXL = func() nixl.Config { return nixl.Config{Transports: []nixl.Transport{w.peers.Transport()}} }
	}
}
