package worker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/store"
)

// deaf is a store that takes no writes for a while, and says when it was asked to.
type deaf struct {
	store.Store
	mu     sync.Mutex
	until  time.Time
	begin  time.Time
	failed []time.Duration // since begin
	taken  []time.Duration
}

func (d *deaf) Put(context.Context, string, []byte, ...store.PutOption) (store.Revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Before(d.until) {
		d.failed = append(d.failed, now.Sub(d.begin))
		return 0, store.ErrUnavailable
	}
	d.taken = append(d.taken, time.Since(d.begin))
	return 1, nil
}

// A status that could not be written is written as soon as the store takes it; one that
// was written is not written again before the heartbeat or the next change.
func TestStatusIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := &deaf{begin: now, until: now.Add(3*cluster.StatusInterval + cluster.StatusInterval/2)}
		bus := events.NewMemory()
		defer bus.Close()
		w := New(Config{
			Assignment: cluster.Assignment{Name: "worker-1", Role: cluster.RoleDecode}, Namespace: cluster.DefaultNamespace,
			Store: s, Bus: bus, Metrics: metrics.NewRegistry(), Log: slog.New(slog.DiscardHandler), QueueDepth: func() int { return 0 },
		})
		w.meters.relabel(cluster.RoleDecode, cluster.EndpointGenerate)
		publishing := ondemand.New(t.Context(), w.publishStatus)
		w.board.publish(publishing)
		const beat = int(cluster.HeartbeatInterval / cluster.StatusInterval)
		const change = 4 + beat + 2
		time.Sleep(time.Duration(change) * cluster.StatusInterval)
		w.setState(cluster.StateLoading, "")
		synctest.Wait()
		publishing.Close()
		seconds := func(n ...int) (all []time.Duration) {
			for _, n := range n {
				all = append(all, time.Duration(n)*cluster.StatusInterval)
			}
			return all
		}
		if want := seconds(0, 1, 2, 3); !slices.Equal(s.failed, want) {
			t.Errorf("writes failed at %v, want %v", s.failed, want)
		}
		if want := seconds(4, 4+beat, change); !slices.Equal(s.taken, want) {
			t.Errorf("written at %v, want %v: when the store is back, at the heartbeat, at the change", s.taken, want)
		}
	})
}

// Workers of a process publish their statuses at the same instants, once in StatusInterval.
func TestBeat(t *testing.T) {
	now := time.Now()
	first := now.Add(untilBeat(now))
	for _, d := range []time.Duration{0, 1, cluster.StatusInterval / 3, cluster.StatusInterval - 1} {
		at := first.Add(d)
		if next := at.Add(untilBeat(at)); !next.Equal(first.Add(cluster.StatusInterval)) {
			t.Errorf("%s after a beat the next is %s after it", d, next.Sub(first))
		}
	}
	if d := first.Sub(now); d <= 0 || d > cluster.StatusInterval {
		t.Errorf("the next beat is in %s", d)
	}
}
