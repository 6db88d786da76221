package worker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
)

// A worker is not "safe to stop" while a peer may still touch its memory, or while it
// still moves bytes itself, also when the engine knows nothing of that.
func TestDrainAwaitsTransfers(t *testing.T) {
	for _, tc := range []struct {
		name string
		// begin has something under way at the worker that only the data path knows of,
		// until the returned function is called.
		begin func(t *testing.T, d *running, stranger *nixl.Agent, s *standstill, g *gates) (end func())
	}{
		{"a peer writes", func(t *testing.T, d *running, stranger *nixl.Agent, s *standstill, _ *gates) func() {
			s.next(nixl.Write)
			moves(t, nixl.Write, stranger, d.nixl(), d.plane().Descs([]int32{0}))
			return s.end
		}},
		{"a peer reads", func(t *testing.T, d *running, stranger *nixl.Agent, s *standstill, _ *gates) func() {
			s.next(nixl.Read)
			moves(t, nixl.Read, stranger, d.nixl(), d.plane().Descs([]int32{0}))
			return s.end
		}},
		{"it writes", func(t *testing.T, d *running, stranger *nixl.Agent, _ *standstill, g *gates) func() {
			open := g.close(nixl.Write)
			r, err := stranger.Register(make(heap, 64), nixl.DRAM)
			if err != nil {
				t.Fatal(err)
			}
			var moving sync.WaitGroup
			moving.Go(func() { moves(t, nixl.Write, d.nixl(), stranger, []nixl.Desc{r.Desc(0, 64)}) })
			eventually(t, "it moves bytes", func() bool { return g.waiting() == 1 })
			return func() {
				open()
				moving.Wait()
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.tune = func(k *Worker) { k.waits.poll, k.waits.grace = time.Millisecond, time.Millisecond }
				s, g := &standstill{}, &gates{}
				d := w.start("worker-1", cluster.RoleDecode, overMemory(w), s.at, gate(g))
				stranger, err := nixl.NewAgent(nixl.Config{Name: "stranger", Transports: []nixl.Transport{w.peers.Transport()}})
				if err != nil {
					t.Fatal(err)
				}
				defer stranger.Close()
				end := tc.begin(t, d, stranger, s, g)
				defer end()
				in, out := d.nixl().InFlight()
				if in+out != 1 {
					t.Fatalf("%d accesses by peers and %d transfers, want 1 in all", in, out)
				}
				d.drain(t)
				eventually(t, "only the data path is not at rest", func() bool { return step(d) == cluster.DrainOutgoing || len(d.ended) > 0 })
				time.Sleep(60 * time.Millisecond) // looks of the drain, and more
				if len(d.ended) > 0 || step(d) != cluster.DrainOutgoing {
					t.Fatalf("the drain is complete with %d accesses by peers and %d transfers", in, out)
				}
				if got := d.Status().Drain.Outgoing; got != out {
					t.Errorf("%d transfers are told to be under way, want %d", got, out)
				}
				end()
				d.drained(t)
			})
		})
	}
}

// step is how far a drain is, if one has begun.
func step(d *running) cluster.DrainStep {
	if st := d.Status().Drain; st != nil {
		return st.Step
	}
	return ""
}

// moves makes a transfer of a's memory with that of b, under a ticket that ends with it.
func moves(t *testing.T, op nixl.Op, a, b *nixl.Agent, there []nixl.Desc) {
	id, err := b.OpenTicket(nixl.TicketSpec{Access: op, Descs: there})
	if err != nil {
		t.Error(err)
		return
	}
	mem, err := a.Register(make(heap, there[0].Len), nixl.DRAM)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := a.LoadRemote(b.Metadata()); err != nil {
		t.Error(err)
		return
	}
	x, err := a.NewTransfer(op, []nixl.Desc{mem.Desc(0, there[0].Len)}, there, b.Name(), nixl.TransferOpts{Ticket: id})
	if err != nil {
		t.Error(err)
		return
	}
	x.Post()
	if err := x.Wait(t.Context()); err != nil {
		t.Errorf("%s: %v", op, err)
	}
}

// heap is memory of a stranger.
type heap []byte

func (h heap) Bytes() []byte { return h }
