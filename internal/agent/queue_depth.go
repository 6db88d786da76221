package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

// queueDepth keeps the last known depth of the prefill queue, so that admission decisions
// need not wait for the network. One node asks the queue and tells the others. A node that
// hears of no depth for a while asks itself; of two that ask, the one with the smaller name
// goes on.
type queueDepth struct {
	queue   events.WorkQueue
	bus     events.Bus
	subject string
	node    string
	log     *slog.Logger
	last    atomic.Int64
}

const (
	// depthEvery is the interval between questions of the node that asks.
	depthEvery = 250 * time.Millisecond
	// depthTold is how often it tells a depth that has not changed.
	depthTold = time.Second
	// depthSilence is the least time without news after which another node asks; at most
	// half of it is added by chance.
	depthSilence = 2 * depthTold
)

func (a *Agent) newQueueDepth() *queueDepth {
	return &queueDepth{
		queue: a.stores.queue, bus: a.stores.bus, node: a.nodeID, log: a.log,
		subject: events.Subject(a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicQueueDepth),
	}
}

func (d *queueDepth) get() int { return int(d.last.Load()) }

// run keeps the depth current until ctx ends. While the queue is unreachable the last value
// stays.
func (d *queueDepth) run(ctx context.Context) {
	heard := make(chan cluster.QueueDepth, 16) // those of other nodes
	sub, err := d.bus.Subscribe(ctx, d.subject, func(e events.Event) {
		var depth cluster.QueueDepth
		if e.Decode(&depth) != nil || depth.Node == d.node || depth.Waiting < 0 {
			return
		}
		select {
		case heard <- depth:
		default: // the next one comes soon
		}
	})
	if err != nil {
		d.log.Warn("this node asks for the depth of the prefill queue itself: it cannot hear of it", "error", err)
	} else {
		defer func() { _ = sub.Close() }()
	}
	asks := false
	var told time.Time
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case depth := <-heard:
			d.last.Store(int64(depth.Waiting))
			if !asks || depth.Node < d.node {
				asks = false
				next.Reset(depthSilence + rand.N(depthSilence/2))
			}
		case <-next.C:
			next.Reset(depthEvery)
			waiting, err := d.queue.Waiting(ctx)
			if err != nil {
				asks = false // whoever can ask goes on
				continue
			}
			changed := d.last.Swap(int64(waiting)) != int64(waiting)
			if !asks || changed || time.Since(told) >= depthTold {
				told = time.Now()
				_ = d.bus.Publish(ctx, d.subject, cluster.QueueDepth{Node: d.node, Waiting: waiting}) // lost ones are counted by the bus
			}
			asks = true
		}
	}
}
