package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// startRanks starts a worker whose four KV heads so many ranks share.
func (w *world) startRanks(name string, role cluster.Role, n int, changes ...func(*Config)) *running {
	w.opts.KVHeads, w.opts.TensorParallel = 4, n
	return w.start(name, role, changes...)
}

// Workers of any tensor-parallel degrees exchange KV in every way, and sequences move
// between them.
func TestTensorParallelDegrees(t *testing.T) {
	for _, tc := range []struct {
		prefill, decode int
		tcp             bool
	}{{1, 2, false}, {2, 1, false}, {2, 4, false}, {4, 2, false}, {1, 4, true}, {4, 1, true}, {2, 2, true}} {
		t.Run(fmt.Sprintf("prefill %d, decode %d, tcp %t", tc.prefill, tc.decode, tc.tcp), func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			w.tcp = tc.tcp
			pre := w.startRanks("worker-1", cluster.RolePrefill, tc.prefill)
			d := w.startRanks("worker-2", cluster.RoleDecode, tc.decode)
			eventually(t, "the prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
			if n, m := pre.Status().TensorParallel, d.Status().TensorParallel; n != tc.prefill || m != tc.decode {
				t.Errorf("degrees %d and %d are told, want %d and %d", n, m, tc.prefill, tc.decode)
			}
			// Paths are proven before, one at a time: many proofs at once time out on a busy
			// machine.
			met(t, pre, d)
			eventually(t, "the path to the prefill worker is proven", func() bool { return meets(d.term.Load().peers.Meet(t.Context(), pre.nixl().Name(), nil)) })
			h := w.hops()
			shared := prompt(r, 40)
			ways := map[protocol.PrefillWay]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range 24 {
				p := prompt(r, 30+10*i)
				if i%4 == 1 { // begins with what may be in the caches
					p = slices.Concat(shared, p)
				}
				wg.Go(func() {
					req := request(fmt.Sprint("r", i), p, 8)
					switch i % 3 {
					case 0:
						req, _ = h.hold("worker-1", req, patience.Soon)
					case 1:
						room := h.room("worker-1", uint64(i))
						h.call(t.Context(), "worker-1", req, room, patience.Soon)
						req = inRoom(req, room)
					}
					got := w.generate(t.Context(), "", req)
					check(t, got, p, 8)
					mu.Lock()
					defer mu.Unlock()
					if got.timing != nil {
						ways[got.timing.PrefillWay]++
					}
				})
			}
			wg.Wait()
			if ways[protocol.WayPull] != 8 || ways[protocol.WayBackground] != 8 || ways[protocol.WayQueue] != 8 {
				t.Errorf("ways %v, want 8 of each", ways)
			}
			idle(t, pre, d)

			// The sequences of a worker that drains go on at one with the other degree.
			other := w.startRanks("worker-3", cluster.RoleDecode, tc.prefill)
			slowDecode(2 * time.Millisecond)(&w.opts)
			leaving := w.startRanks("worker-4", cluster.RoleDecode, tc.decode)
			d.drain(t)
			d.drained(t)
			leaving.ready(t, 1)
			var reqs []protocol.PreprocessedRequest
			for i := range 4 {
				reqs = append(reqs, request(fmt.Sprint("m", i), prompt(r, 20+40*i), 400))
			}
			g := w.streams(t.Context(), leaving, reqs)
			leaving.drain(t)
			if got := leaving.drained(t); got.Moved != len(reqs) {
				t.Errorf("drain %+v, want %d moved", got, len(reqs))
			}
			g.wg.Wait()
			for i, req := range reqs {
				if got, want := g.got[i], mock.Continue(req.TokenIDs, 400, vocab); got.err != nil || got.replays > 0 || !slices.Equal(got.tokens, want) {
					t.Errorf("%s after %d moves and %d replays: %v, got %v, want %v", req.RequestID, got.moves, got.replays, got.err, got.tokens, want)
				}
			}
			if st := other.Status().Stats; st.TransferBytesTotal == 0 {
				t.Error("no KV came with the sequences")
			}
			other.quiet(t)
		})
	}
}

// swapped is a backend that gives its ranks out in the wrong order.
type swapped struct{ *mock.Backend }

func (s swapped) AllocKV(n int) (engine.KVPool, error) {
	pool, err := s.Backend.AllocKV(n)
	pool = slices.Clone(pool) // its own stays as it is
	slices.Reverse(pool)
	return pool, err
}

// If heads came to the wrong ranks, the tests above would see it: other tokens come out.
func TestWrongHeadsAreNoticed(t *testing.T) {
	for _, way := range []protocol.PrefillWay{protocol.WayQueue, protocol.WayPull} {
		t.Run(string(way), func(t *testing.T) {
			r := seeded(t)
			w := newWorld(t)
			w.startRanks("worker-1", cluster.RolePrefill, 2, func(c *Config) {
				load := c.Load
				c.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
					l, err := load(ctx, progress)
					l.Backend = swapped{l.Backend.(*mock.Backend)}
					return l, err
				}
			})
			d := w.startRanks("worker-2", cluster.RoleDecode, 4)
			eventually(t, "the prefill worker is seen", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
			p := prompt(r, 100)
			req := request("a", p, 8)
			if way == protocol.WayPull {
				req, _ = w.hops().hold("worker-1", req, patience.Soon)
			}
			got := w.generate(t.Context(), "", req)
			if got.err != nil || got.timing == nil || got.timing.PrefillWay != way {
				t.Fatalf("%v, timing %+v", got.err, got.timing)
			}
			if slices.Equal(got.tokens, mock.Continue(p, 8, vocab)) {
				t.Error("the tokens are right although heads were exchanged")
			}
		})
	}
}
