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
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
)

// caches holds what a frontend knows of the workers' KV caches and speed.
type caches struct {
	index *kvindex.Index
	// approx fills the index by what the frontend has sent where; it is nil if the feed
	// fills it by events.
	approx *kvfeed.Approx
	feed   *kvfeed.Feed

	matches sync.Pool // of *kvindex.Match

	mu      sync.Mutex // never held while the feed is called
	workers map[cluster.InstanceID]*cachedWorker
	metrics *metrics.KVIndex
}

// cachedWorker holds the figures of one worker in discovery.
type cachedWorker struct {
	name     string
	rate     float64 // prompt tokens per second, by its last status
	transfer float64 // the same of its KV
	kvBlocks int     // the size of its pool
	kvInUse  int     // blocks of it that are neither free nor only cached
	prompts  int     // that it is computing
	waiting  int     // tokens that these have left to compute
	unwell   string  // why it may not answer
	told     time.Time
	accuracy cluster.KVAccuracy
	recent   recent[cluster.KVAccuracy]
}

// oldStatus is the age from which a worker's last status does not say how full it is: a
// worker whose events are lost must not stay excluded.
const oldStatus = 5 * cluster.StatusInterval

// indexBytes bounds the index: some ten million blocks.
const indexBytes = 512 << 20

func newCaches(ctx context.Context, rt *runtime.DistributedRuntime, events bool, ttl time.Duration, reg *metrics.Registry, log *slog.Logger) (*caches, error) {
	c := &caches{index: kvindex.New(kvindex.Config{MaxBytes: indexBytes}), workers: map[cluster.InstanceID]*cachedWorker{}}
	c.metrics = metrics.NewKVIndex(reg, func() float64 { return float64(c.index.Size().Blocks) }, func() float64 { return float64(c.index.Size().Bytes) })
	c.matches.New = func() any { return new(kvindex.Match) }
	feed := kvfeed.Config{Runtime: rt, Log: log, Came: c.came, Status: c.status, Gone: c.gone}
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

// came notes a worker that has entered discovery.
func (c *caches) came(id cluster.InstanceID, worker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers[id] = &cachedWorker{name: worker}
}

// status keeps the figures that a worker publishes every second.
func (c *caches) status(st cluster.WorkerStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[st.InstanceID]
	s := &st.Stats
	w.unwell = st.Unhealthy
	w.rate, w.transfer, w.kvBlocks = s.PrefillRate, transferRate(st), s.KVTotal
	w.kvInUse, w.prompts, w.waiting, w.told = s.KVUsed(), s.Prefilling, s.PrefillTokens, time.Now()
}

// transferRate returns the mean speed of a worker's KV transfers so far, in tokens per
// second; 0 before the first one.
func transferRate(st cluster.WorkerStatus) float64 {
	s := st.Stats
	if s.TransferNanosTotal == 0 || st.BlockBytes <= 0 {
		return 0
	}
	return float64(s.TransferBytesTotal) / float64(s.TransferNanosTotal) * 1e9 * float64(s.BlockSize) / float64(st.BlockBytes)
}

// prefillHints describe the mean of the prefill workers; has is what caches hold of the
// prompt, in blocks of so many tokens.
func (c *caches) prefillHints(of map[cluster.InstanceID]cluster.RuntimeConfig, has held, blockSize int) (h protocol.PrefillHints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rates, transfers, told, cached int
	for _, o := range has.by {
		if _, counts := of[o.Worker]; counts {
			cached += o.Total()
		}
	}
	for id := range of {
		w := c.workers[id]
		if w == nil {
			continue
		}
		if w.rate > 0 {
			rates, h.Rate = rates+1, h.Rate+w.rate
		}
		if w.transfer > 0 {
			transfers, h.TransferRate = transfers+1, h.TransferRate+w.transfer
		}
		if time.Since(w.told) < oldStatus {
			told, h.Prompts, h.Waiting = told+1, h.Prompts+float64(w.prompts), h.Waiting+w.waiting
		}
	}
	h.Rate, h.TransferRate = h.Rate/float64(max(1, rates)), h.TransferRate/float64(max(1, transfers))
	h.Prompts, h.Waiting = h.Prompts/float64(max(1, told)), h.Waiting/max(1, told)
	h.Cached = cached * blockSize / max(1, len(of))
	return h
}

// gone forgets a worker that has left discovery.
func (c *caches) gone(id cluster.InstanceID) {
	c.mu.Lock()
	name := c.workers[id].name
	delete(c.workers, id)
	again := false // it has come back as another instance
	for _, w := range c.workers {
		again = again || w.name == name
	}
	if !again {
		c.metrics.Forget(name)
	}
	c.mu.Unlock()
	if c.approx != nil {
		c.approx.Drop(id)
	}
}

// held is what the caches of all workers hold of the beginning of a prompt.
type held struct {
	by   []kvindex.Overlap
	most int // leading blocks that at least one worker holds
}

// lookup returns what the caches hold of a prompt.
func (c *caches) lookup(hashes []uint64) held {
	if c.approx != nil {
		c.approx.Expire(time.Now())
	}
	m := c.matches.Get().(*kvindex.Match)
	defer c.matches.Put(m)
	c.index.Lookup(hashes, m)
	h := held{by: slices.Clone(m.Overlaps)}
	for _, o := range h.by {
		h.most = max(h.most, o.Total())
	}
	return h
}

// describe fills in what is known of the candidates, which come in the order of their ids,
// for a prompt of which the caches hold has.
func (c *caches) describe(candidates []router.Candidate, has held) {
	for _, o := range has.by {
		at, found := slices.BinarySearchFunc(candidates, o.Worker, func(c router.Candidate, id cluster.InstanceID) int { return cmp.Compare(c.ID, id) })
		if found {
			candidates[at].Overlap = router.Overlap{Device: o.Blocks[kvindex.Device], Host: o.Blocks[kvindex.Host], Disk: o.Blocks[kvindex.Disk]}
		}
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range candidates {
		of := &candidates[i]
		if w := c.workers[of.ID]; w != nil {
			of.PrefillRate, of.TransferRate, of.KVBlocks = w.rate, w.transfer, w.kvBlocks
			if now.Sub(w.told) < oldStatus {
				of.KVInUse, of.Unhealthy = w.kvInUse, w.unwell
			}
		}
	}
}

// longest returns the most leading blocks of a prompt that any worker has.
func (c *caches) longest(hashes []uint64) (blocks int) {
	m := c.matches.Get().(*kvindex.Match)
	defer c.matches.Put(m)
	c.index.Lookup(hashes, m)
	for _, o := range m.Overlaps {
		blocks = max(blocks, o.Total())
	}
	return blocks
}

// routed notes that a prompt was sent to a worker.
func (c *caches) routed(id cluster.InstanceID, hashes []uint64) {
	if c.approx != nil {
		c.approx.Routed(id, hashes, time.Now())
	}
}

// found compares a prediction, and the blocks that any worker held, with those that the
// worker found.
func (c *caches) found(id cluster.InstanceID, predicted, reusable, found int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[id]
	if w == nil {
		return // it has left
	}
	c.metrics.Routed(w.name, predicted, reusable, found)
	a := cluster.KVAccuracy{Requests: 1, Predicted: uint64(predicted), Found: uint64(found), False: uint64(max(0, predicted-found))}
	w.accuracy = w.accuracy.Plus(a)
	w.recent.add(time.Now(), a)
}

// report describes the index; hashes are those of a prompt, if one was asked about.
func (c *caches) report(hashes []uint64) cluster.KVIndex {
	size := c.index.Size()
	now := time.Now()
	out := cluster.KVIndex{
		At: now, Approximate: c.approx != nil, Blocks: size.Blocks, Held: size.Held, Bytes: size.Bytes, Forgotten: size.Evicted,
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
		if of := c.workers[s.Worker]; of != nil {
			lately := of.recent.sum(now)
			w.Accuracy, w.Recent = of.accuracy, &lately
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
