package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Between the promise of KV and its reading the blocks were given back and hold the KV of
// other prompts. The answer is computed anew: the text of somebody else's prompt, which the
// hash backend would make of that KV, is never decoded.
func TestReusedBlocksAreNotDecoded(t *testing.T) {
	t.Parallel()
	for _, tcp := range []bool{false, true} {
		for _, tc := range []struct {
			name     string
			deadline time.Duration
			// free has the blocks given back, and returns the worker that uses them next.
			free func(t *testing.T, w *world, pre *running, s requestplane.Stream) *running
		}{
			{"its caller left", patience.Soon, func(_ *testing.T, _ *world, pre *running, s requestplane.Stream) *running {
				s.Close()
				return pre
			}},
			{"its deadline passed", 150 * time.Millisecond, func(_ *testing.T, _ *world, pre *running, _ requestplane.Stream) *running {
				return pre
			}},
			{"it was restarted", patience.Soon, func(_ *testing.T, w *world, pre *running, _ requestplane.Stream) *running {
				_ = pre.stop(errKilled)
				// The decode worker asks the new one, which has no blocks left, until then.
				w.putSettings(func(k *Settings) { k.RemoteTimeout = time.Second })
				return w.start("worker-1", cluster.RolePrefill)
			}},
		} {
			t.Run(fmt.Sprintf("%s, tcp %t", tc.name, tcp), func(t *testing.T) {
				if testing.Short() && (tcp || tc.deadline > time.Second) {
					t.Skip("a short test is over memory, and waits for a short deadline only")
				}
				r := seeded(t)
				w := newWorld(t)
				w.tcp = tcp
				pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode)
				met(t, pre, d)
				h := w.hops()
				p := prompt(r, 200)
				req, s := h.hold("worker-1", request("a", p, 20), tc.deadline)
				promised := req.Disagg.Params
				pre = tc.free(t, w, pre, s)
				eventually(t, "the blocks are given back", func() bool { return pre.engine().Check(t.Context(), true) == nil })
				if _, err := pre.engine().ClearCache(t.Context()); err != nil {
					t.Fatal(err)
				}
				if tc.deadline < time.Second { // who reads late believes that it is not
					promised.Deadline = time.Now().Add(patience.Soon)
				}
				fresh := w.hops() // of the worker that is there now
				reused := 0
				for _, id := range []string{"b", "c"} { // nearly all blocks there are
					other, _ := fresh.hold("worker-1", request(id, prompt(r, 2000), 2), patience.Soon)
					for _, b := range other.Disagg.Params.BlockIDs {
						if slices.Contains(promised.BlockIDs, b) {
							reused++
						}
					}
				}
				if reused == 0 {
					t.Fatal("no block is used again: the case tests nothing")
				}
				got := w.generate(t.Context(), "worker-2", req)
				check(t, got, p, 20)
				if got.timing == nil || got.timing.PrefillWay == protocol.WayPull {
					t.Errorf("%d of %d blocks hold other KV, and were read: %+v", reused, len(promised.BlockIDs), got.timing)
				}
			})
		}
	}
}
