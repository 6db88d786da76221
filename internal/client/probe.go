package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/store"
)

// Probe holds the answers of a cluster's services at one moment.
type Probe struct {
	Etcd Reply
	// NATS and Queue are nil when no event plane is configured.
	NATS  *Reply
	Queue *QueueReply
	// Leases lists the leases of workers and nodes, the soonest to expire first. Gone
	// names the owners whose lease has ended. Unasked counts the leases that were not
	// queried.
	Leases  []cluster.Lease
	Gone    []string
	Unasked int
	// Clocks compares the nodes' clocks with this one, by node name.
	Clocks map[string]Clock
	// Workers holds the workers' answers over the request plane, by worker name.
	Workers map[string]Reply
}

// Reply is the round trip time of one answer, or the error in its place.
type Reply struct {
	RTT time.Duration
	Err error
}

// QueueReply is the depth of the prefill queue, or the error in its place.
type QueueReply struct {
	Depth    events.Depth
	LastDead *events.DeadLetter // the newest dead letter; nil if there is none
	Err      error
}

// Clock compares another clock with this one. Offset is how far the other one is ahead.
// The other time was taken between question and answer; Uncertainty is half of that time.
type Clock struct {
	Offset, Uncertainty time.Duration
}

// Probe asks all services at the same time. Services that have not answered when ctx ends
// count as failed.
func (c *Cluster) Probe(ctx context.Context, v View) Probe {
	var p Probe
	var wg sync.WaitGroup
	wg.Go(func() { p.Etcd.RTT, p.Etcd.Err = c.store.Ping(ctx) })
	wg.Go(func() {
		l := leases{}
		l.refresh(ctx, c.store, v)
		p.Leases = l.list(v, time.Now())
		for id, owner := range leaseOwners(v) {
			if s, asked := l[id]; !asked {
				p.Unasked++
			} else if s.gone {
				p.Gone = append(p.Gone, owner)
			}
		}
		slices.SortFunc(p.Gone, cluster.CompareNames)
	})
	wg.Go(func() { p.Clocks, p.Workers = c.workers(ctx, v) })
	wg.Go(func() { p.NATS, p.Queue = c.probeNATS(ctx) })
	wg.Wait()
	return p
}

// probeNATS opens a new connection, as a starting program would.
func (c *Cluster) probeNATS(ctx context.Context) (*Reply, *QueueReply) {
	bus, err := c.Bus()
	switch {
	case err != nil:
		return &Reply{Err: err}, &QueueReply{Err: err}
	case bus == nil:
		return nil, nil
	}
	defer func() { _ = bus.Close() }() // nothing was published
	var r Reply
	if r.Err = connected(ctx, bus); r.Err == nil {
		r.RTT, r.Err = bus.Ping(ctx)
	}
	if r.Err != nil {
		return &r, &QueueReply{Err: errors.New("NATS does not answer")}
	}
	var q QueueReply
	var queue *events.JetStreamQueue
	if queue, q.Err = bus.WorkQueue(c.Namespace, events.QueueConfig{}); q.Err == nil {
		if q.Depth, q.Err = queue.Depth(ctx); q.Err == nil && q.Depth.DeadLettered > 0 {
			q.LastDead, q.Err = queue.LastDead(ctx)
		}
	}
	return &r, &q
}

// connectPoll is the interval at which a new connection is checked.
const connectPoll = 10 * time.Millisecond

func connected(ctx context.Context, bus *events.NATS) error {
	tick := time.NewTicker(connectPoll)
	defer tick.Stop()
	for !bus.Connected() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if why := bus.Stats().LastError; why != "" {
				return fmt.Errorf("%w: %s", events.ErrUnavailable, why)
			}
			return fmt.Errorf("%w: no connection in time", events.ErrUnavailable)
		}
	}
	return nil
}

// workers asks every worker, and compares the clocks of their nodes with this one.
func (c *Cluster) workers(ctx context.Context, v View) (map[string]Clock, map[string]Reply) {
	out, replies := map[string]Clock{}, map[string]Reply{}
	var mu sync.Mutex
	askWorkers(v, func(inst cluster.Instance) {
		before := time.Now()
		st, err := c.ask(ctx, inst)
		took := time.Since(before)
		mu.Lock()
		defer mu.Unlock()
		replies[inst.Worker] = Reply{RTT: took, Err: err}
		if err != nil || st.UpdatedAt.IsZero() {
			return
		}
		// Offset compares wall clocks; took is measured with the monotonic clock.
		k := Clock{Offset: st.UpdatedAt.Sub(before.Round(0)) - took/2, Uncertainty: took / 2}
		name := v.NodeName(st.Node)
		if old, known := out[name]; !known || k.Uncertainty < old.Uncertainty {
			out[name] = k
		}
	})
	return out, replies
}

// ask asks a worker for its current status.
func (c *Cluster) ask(ctx context.Context, inst cluster.Instance) (cluster.WorkerStatus, error) {
	var st cluster.WorkerStatus
	stream, err := c.plane.Call(ctx, inst.Transport.Address(), "stats", nil, nil)
	if err != nil {
		return st, err
	}
	defer stream.Close()
	err = stream.Recv(ctx, &st)
	return st, err
}

// Leader returns the name of the node whose controller leads; empty when there is no
// leader.
func (c *Cluster) Leader(ctx context.Context) (string, error) {
	leader, err := store.Leader(ctx, c.store, cluster.ElectionPrefix(c.Namespace))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return leader, err
}
