package frontend

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvfeed"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
)

// caches is what a frontend knows of the workers' KV caches and speed.
type caches struct {
	index *kvindex.Index
	// approx fills the index by what the frontend has sent where; it is nil if the feed
	// fills it by events.
	approx *kvfeed.Approx
	feed   *kvfeed.Feed

	matches sync.Pool // of *kvindex.Match

	mu       sync.Mutex
	figures  map[cluster.InstanceID]figures
	accuracy map[cluster.InstanceID]*workerAccuracy
	metrics  *metrics.KVIndex
}

// workerAccuracy is how true the index was of one instance of a worker.
type workerAccuracy struct {
	worker string
	cluster.KVAccuracy
}

// figures are what a worker has told of itself.
type figures struct {
	rate     float64 // prompt tokens per second
	kvBlocks int
}

// indexBytes bounds the index: some ten million blocks.
const indexBytes = 512 << 20

func newCaches(ctx context.Context, rt *runtime.DistributedRuntime, events bool, ttl time.Duration, reg *metrics.Registry, log *slog.Logger) (*caches, error) {
	c := &caches{index: kvindex.New(kvindex.Config{MaxBytes: indexBytes}), figures: map[cluster.InstanceID]figures{}, accuracy: map[cluster.InstanceID]*workerAccuracy{}}
	c.metrics = metrics.NewKVIndex(reg, func() float64 { return float64(c.index.Size().Blocks) }, func() float64 { return float64(c.index.Size().Bytes) })
	c.matches.New = func() any { return new(kvindex.Match) }
	feed := kvfeed.Config{Runtime: rt, Log: log, Status: c.status, Gone: c.gone}
	if events {
		feed.Index = c.index
	} else {
		c.approx = kvfeed.NewApprox(c.index, ttl, kvfeed.DefaultMost)
	}
	var err error
	if c.feed, err = kvfeed.New(ctx, feed); err != nil {
		return nil, err
	}
	return c, nil
}

// status keeps what a worker tells every second.
func (c *caches) status(st cluster.WorkerStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.figures[st.InstanceID] = figures{rate: st.Stats.PrefillRate, kvBlocks: st.Stats.KVTotal}
}

// gone forgets a worker that has left.
func (c *caches) gone(id cluster.InstanceID) {
	c.mu.Lock()
	delete(c.figures, id)
	if a := c.accuracy[id]; a != nil {
		delete(c.accuracy, id)
		if !c.measures(a.worker) { // it has not come back as another instance
			c.metrics.Forget(a.worker)
		}
	}
	c.mu.Unlock()
	if c.approx != nil {
		c.approx.Drop(id)
	}
}

// measures reports whether some instance of a worker has been compared with the index. The
// caller holds mu.
func (c *caches) measures(worker string) bool {
	for _, a := range c.accuracy {
		if a.worker == worker {
			return true
		}
	}
	return false
}

// describe fills in what is known of the candidates for a prompt.
func (c *caches) describe(candidates []router.Candidate, hashes []uint64) {
	if c.approx != nil {
		c.approx.Expire(time.Now())
	}
	m := c.matches.Get().(*kvindex.Match)
	defer c.matches.Put(m)
	c.index.Lookup(hashes, m)
	overlaps := make(map[cluster.InstanceID]router.Overlap, len(m.Overlaps))
	for _, o := range m.Overlaps {
		overlaps[o.Worker] = router.Overlap{Device: o.Blocks[kvindex.Device], Host: o.Blocks[kvindex.Host], Disk: o.Blocks[kvindex.Disk]}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range candidates {
		of := &candidates[i]
		f := c.figures[of.ID]
		of.Overlap, of.PrefillRate, of.KVBlocks = overlaps[of.ID], f.rate, f.kvBlocks
	}
}

// routed notes that a prompt was sent to a worker.
func (c *caches) routed(id cluster.InstanceID, hashes []uint64) {
	if c.approx != nil {
		c.approx.Routed(id, hashes, time.Now())
	}
}

// found compares a prediction with what the worker found.
func (c *caches) found(id cluster.InstanceID, worker string, predicted, found int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.accuracy[id]
	if a == nil {
		if !c.feed.Knows(id) {
			return // it has left
		}
		a = &workerAccuracy{worker: worker}
		c.accuracy[id] = a
	}
	c.metrics.Routed(worker, predicted, found)
	a.Requests++
	a.Predicted += uint64(predicted)
	a.Found += uint64(found)
	a.False += uint64(max(0, predicted-found))
}

// report describes the index; hashes are those of a prompt, if one was asked about.
func (c *caches) report(hashes []uint64) cluster.KVIndex {
	size := c.index.Size()
	out := cluster.KVIndex{
		Approximate: c.approx != nil, Blocks: size.Blocks, Held: size.Held, Bytes: size.Bytes, Forgotten: size.Evicted,
		PromptBlocks: len(hashes), Workers: []cluster.KVIndexWorker{},
	}
	var m kvindex.Match
	c.index.Lookup(hashes, &m)
	for _, s := range c.feed.States() {
		held := c.index.Held(s.Worker)
		w := cluster.KVIndexWorker{
			Worker: s.Name, InstanceID: s.Worker, Device: held[kvindex.Device], Host: held[kvindex.Host], Disk: held[kvindex.Disk],
			Epoch: s.Epoch, Next: s.Next, OutOfDateSince: s.OutOfDate,
			GapsTotal: s.Gaps, AnswersTotal: s.Answers, DumpsTotal: s.Dumps, ResetsTotal: s.Resets,
			Overlap: m.Find(s.Worker).Total(),
		}
		c.mu.Lock()
		if a := c.accuracy[s.Worker]; a != nil {
			w.Accuracy = a.KVAccuracy
		}
		c.mu.Unlock()
		out.Workers = append(out.Workers, w)
	}
	slices.SortFunc(out.Workers, func(a, b cluster.KVIndexWorker) int {
		return cmp.Or(cluster.CompareNames(a.Worker, b.Worker), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	return out
}

// run keeps the caches current until ctx ends.
func (c *caches) run(ctx context.Context) { c.feed.Run(ctx) }

func (c *caches) close() { c.feed.Close() }
