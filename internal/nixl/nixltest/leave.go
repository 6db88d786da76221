package nixltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
)

// testLeave closes connections in order while notifications and their answers are under way:
// the target does not take the initiator for lost.
func testLeave(t *testing.T, e Env) {
	a, b := e.Agent(t, "a"), e.Agent(t, "b")
	ctx, cancel := context.WithCancel(Context(t))
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-b.Notifications():
			case <-ctx.Done():
				return
			}
		}
	})
	defer reader.Wait()
	defer cancel()
	for range 200 / shrink {
		Load(t, a, b)
		var senders sync.WaitGroup
		sent := make(chan struct{}, 1)
		for range 8 {
			senders.Go(func() {
				for a.Notify(ctx, "b", make([]byte, 1000)) == nil {
					select {
					case sent <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 4 {
			select {
			case <-sent:
			case <-ctx.Done():
				t.Fatal("nothing is sent")
			}
		}
		if err := a.Invalidate("b"); err != nil {
			t.Fatal(err)
		}
		senders.Wait()
		wantOrderly(t, b)
	}
}

// wantOrderly waits until a peer has closed its connection, which must not be a loss.
func wantOrderly(t *testing.T, a *nixl.Agent) {
	t.Helper()
	select {
	case d := <-a.PeerDowns():
		if d.Cause != nil {
			t.Errorf("event = %+v", d)
		}
	case <-time.After(limit):
		t.Fatal("no event")
	}
}
