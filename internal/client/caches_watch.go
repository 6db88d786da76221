package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// askCachesEvery is the minimum time between two questions to the frontends about their
// prefix indexes: with many workers, answers are large.
const askCachesEvery = 2 * time.Second

// cachesWatch asks the frontends about the workers' KV caches from time to time. A frontend
// that does not answer delays no snapshot.
type cachesWatch struct {
	asking atomic.Bool
	asked  time.Time // only the maker of snapshots uses it

	mu     sync.Mutex
	newest cluster.KVCaches
}

// refresh asks again, if it is time and the last question is answered. It does not wait;
// wg waits for the question, which ends with ctx.
func (a *cachesWatch) refresh(ctx context.Context, wg *sync.WaitGroup, c *Cluster, v View) {
	if time.Since(a.asked) < askCachesEvery || !a.asking.CompareAndSwap(false, true) {
		return
	}
	a.asked = time.Now()
	wg.Go(func() {
		defer a.asking.Store(false)
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		all, err := c.KVIndexes(ctx, v, protocol.KVIndexRequest{})
		now := time.Now()
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil {
			a.newest.Error = err.Error()
			return
		}
		a.newest = cluster.KVCaches{At: now, Frontends: len(all), Workers: cluster.CombineKVIndexes(all, now)}
	})
}

// caches returns the newest answers about the workers of a snapshot, with the figures of
// their KV events; without heard no events can come.
func (a *cachesWatch) caches(workers []cluster.Worker, t *tally, heard bool) *cluster.KVCaches {
	a.mu.Lock()
	out := a.newest
	a.mu.Unlock()
	known := map[cluster.InstanceID]cluster.KVCache{}
	for _, k := range out.Workers {
		known[k.InstanceID] = k
	}
	out.Workers = []cluster.KVCache{}
	for _, w := range workers {
		if w.InstanceID == 0 || !w.Role.HoldsKV() {
			continue // it has no cache, or none at present
		}
		c, ok := known[w.InstanceID]
		if !ok {
			c = cluster.KVCache{Worker: w.Name, InstanceID: w.InstanceID}
		}
		var rate *float64
		if rate, c.EventAt = t.kvEventsOf(w.InstanceID); heard {
			c.EventRate = rate
		}
		out.Workers = append(out.Workers, c)
	}
	return &out
}
