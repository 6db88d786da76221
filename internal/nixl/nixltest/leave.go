package nixltest

import (
	"context"
	"errors"
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
	for range 80 / shrink {
		Load(t, a, b)
		wait := sendMany(ctx, t, a)
		if err := a.Invalidate("b"); err != nil {
			t.Fatal(err)
		}
		wait()
		if d := nextDown(t, b); d.Cause != nil {
			t.Errorf("event = %+v", d)
		}
	}
}

// testCloseInTraffic closes agents while notifications are on their way to them: the
// initiator hears that they were closed, and does not take them for lost.
func testCloseInTraffic(t *testing.T, e Env) {
	a := e.Agent(t, "a")
	ctx, cancel := context.WithCancel(Context(t))
	defer cancel()
	for range 20 / shrink {
		b := e.Agent(t, "b")
		Load(t, a, b)
		var reader sync.WaitGroup
		reading, stop := context.WithCancel(ctx)
		reader.Go(func() {
			for {
				select {
				case <-b.Notifications():
				case <-reading.Done():
					return
				}
			}
		})
		wait := sendMany(ctx, t, a)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		stop()
		reader.Wait()
		wait()
		if d := nextDown(t, a); !errors.Is(d.Cause, nixl.ErrRemoteClosed) {
			t.Errorf("event = %+v", d)
		}
	}
}

// sendMany has a send notifications to b until that fails, for which wait waits.
func sendMany(ctx context.Context, t *testing.T, a *nixl.Agent) (wait func()) {
	t.Helper()
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
	return senders.Wait
}

// nextDown waits for the end of a connection.
func nextDown(t *testing.T, a *nixl.Agent) nixl.PeerDown {
	t.Helper()
	select {
	case d := <-a.PeerDowns():
		return d
	case <-time.After(limit):
		t.Fatal("no event")
		return nixl.PeerDown{}
	}
}
