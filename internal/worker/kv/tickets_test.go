package kv_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
)

// hosted is a transport that shows its host.
type hosted struct {
	nixl.Transport
	host *nixl.Host
}

func (h hosted) Start(host nixl.Host) ([]byte, error) {
	*h.host = host
	return h.Transport.Start(host)
}

// A quarantine is lifted when the writer is known to have stopped, as long as that takes;
// when the worker ends first, never.
func TestLiftWhenSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var host nixl.Host
		d := kvtest.New(t).Open(t, "worker-1", func(c *kv.Config) {
			c.Proof = 20 * time.Millisecond
			c.NIXL.Transports[0] = hosted{c.NIXL.Transports[0], &host}
		})
		write := func() (nixl.TicketID, *nixl.Grant) {
			id, err := d.OpenTicket(nixl.Write, []int32{1}, time.Time{}, "a")
			if err != nil {
				t.Fatal(err)
			}
			g, err := host.Acquire(nixl.Write, id, d.Descs([]int32{1}))
			if err != nil {
				t.Fatal(err)
			}
			return id, g
		}
		ending := make(chan struct{})
		lift := func(id nixl.TicketID) (lifted, over chan struct{}) {
			lifted, over = make(chan struct{}), make(chan struct{})
			go func() {
				defer close(over)
				d.LiftWhenSafe("a", id, func() { close(lifted) }, ending)
			}()
			return lifted, over
		}
		const soon = 5 * time.Second

		id, g := write()
		lifted, over := lift(id)
		select {
		case <-lifted:
			t.Error("lifted during an access")
		case <-over:
			t.Error("given up during an access, though the worker goes on")
		case <-time.After(5 * 20 * time.Millisecond):
		}
		g.Release(0)
		select {
		case <-lifted:
		case <-time.After(soon):
			t.Error("not lifted after the access")
		}

		id, g = write()
		lifted, over = lift(id)
		close(ending)
		select {
		case <-lifted:
			t.Error("lifted during an access when the worker stopped")
		case <-over:
		case <-time.After(soon):
			t.Error("goes on though the worker stops")
		}
		g.Release(0)
	})
}
