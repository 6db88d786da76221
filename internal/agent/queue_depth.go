package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/events"
)

// queueDepth keeps the last known depth of the prefill queue, so that admission
// decisions need not wait for the network.
type queueDepth struct {
	queue events.WorkQueue
	last  atomic.Int64
}

// depthEvery is the interval between queries of the depth.
const depthEvery = 250 * time.Millisecond

func newQueueDepth(q events.WorkQueue) *queueDepth { return &queueDepth{queue: q} }

func (d *queueDepth) get() int { return int(d.last.Load()) }

// run queries the depth until ctx ends. While the queue is unreachable the last value
// stays.
func (d *queueDepth) run(ctx context.Context) {
	tick := time.NewTicker(depthEvery)
	defer tick.Stop()
	for {
		if depth, err := d.queue.Depth(ctx); err == nil {
			d.last.Store(int64(depth.Pending))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
