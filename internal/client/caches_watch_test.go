package client

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Snapshots hold what the frontends know of the workers' caches, although one of them never
// answers; without any, it is unknown.
func TestLiveKnowsCaches(t *testing.T) {
	s := startServers(t)
	sc := newScene(t, s)
	l := live(t, s.connect(), LiveOptions{})
	none := until(t, l, "no frontend reports", func(s cluster.Snapshot) bool { return s.Caches != nil && s.Caches.Error != "" && s.Workers != nil })
	if c := none.Caches; c.Error != ErrNoIndex.Error() || !c.At.IsZero() || len(c.Workers) != 1 || c.Workers[0].Worker != "worker-1" || c.Workers[0].Index != nil {
		t.Errorf("without a frontend: %+v", c)
	}

	var asked atomic.Int64
	plane(t, sc.c, cluster.ComponentFrontend, cluster.EndpointKVIndex, "id-1", "", grant(t, sc.c, time.Minute), func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		asked.Add(1)
		return send(cluster.KVIndex{Frontend: "node-1", At: time.Now(), Workers: []cluster.KVIndexWorker{
			{Worker: "worker-1", InstanceID: sc.worker, Device: 40, Host: 2, Epoch: 7, Next: 9, OutOfDateSince: time.Now().Add(-65 * time.Second), Recent: &cluster.KVAccuracy{Requests: 9, Predicted: 400, Found: 350, False: 50}},
			{Worker: "worker-9", InstanceID: 99, Device: 1}, // has left since
		}})
	})
	plane(t, sc.c, cluster.ComponentFrontend, cluster.EndpointKVIndex, "id-2", "", grant(t, sc.c, time.Minute), func(ctx context.Context, _ *requestplane.Request, _ func(any) error) error {
		<-ctx.Done()
		return nil
	})
	begin := time.Now()
	id := uint64(0)
	got := until(t, l, "a frontend reports, and events come", func(s cluster.Snapshot) bool {
		sc.publish(t, "decode", cluster.TopicKVEvents, cluster.KVEvent{WorkerID: sc.worker, Worker: "worker-1", EventID: id, Kind: cluster.KVStored, Count: 1, Time: time.Now()})
		id++
		c := s.Caches
		return len(c.Workers) == 1 && c.Workers[0].Index != nil && c.Workers[0].EventRate != nil && *c.Workers[0].EventRate > 0
	})
	c := got.Caches
	if w := c.Workers[0]; c.Frontends != 1 || c.Error != "" || w.Index.Device != 40 || w.Index.Recent.False != 50 || got.Time.Sub(w.EventAt).Abs() > time.Minute {
		t.Errorf("caches %+v", c)
	}
	if most := int64(time.Since(begin)/askCachesEvery) + 1; asked.Load() > most {
		t.Errorf("the frontend was asked %d times in %s", asked.Load(), time.Since(begin))
	}
	if want := []string{"index of worker-1 is out of date for 1m", "worker-1: 12% of 400 predicted blocks were not there"}; len(got.Notices) != 2 || got.Notices[0][:len(want[0])] != want[0] || got.Notices[1] != want[1] {
		t.Errorf("notices %q, want %q", got.Notices, want)
	}

	old := cluster.Snapshot{Time: got.Caches.At.Add(cachesJudged), Fresh: got.Fresh, Caches: got.Caches}
	if n := notices(old, false); slices.Contains(n, got.Notices[1]) {
		t.Errorf("answers that are %s old are judged: %q", cachesJudged, n)
	}
}
