package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

// Queue describes one queue of requests. Figures that a kind of queue lacks are nil.
type Queue struct {
	Name string `json:"name"` // "prefill", or the worker's name
	Kind string `json:"kind"` // QueueWork or QueueEngine
	// Waiting counts the requests that no worker has taken or that are not in a batch
	// yet. InWork counts those that a prefill worker has taken, or in an engine's batch.
	Waiting int `json:"waiting"`
	InWork  int `json:"in_work"`
	// TransferWait counts the sequences that wait for their KV from another worker.
	TransferWait *int `json:"transfer_wait"`
	// Limit is the capacity: of a work queue for all requests, of an engine for those in
	// its batch.
	Limit *int `json:"limit"`
	// DeadLettered counts the requests that were given up.
	DeadLettered *int `json:"dead_lettered"`
}

// The kinds of queues.
const (
	QueueWork   = "work-queue" // the prefill queue of the namespace, in JetStream
	QueueEngine = "engine"     // the queue of one worker's engine
)

// PrefillQueue is the name of the prefill work queue in the list of queues.
const PrefillQueue = "prefill"

// Queues reads the queues of a cluster over one connection to the event plane.
type Queues struct {
	c    *Cluster
	bus  *events.NATS
	work events.WorkQueue
}

// Queues connects to the cluster's event plane, if it has one. The caller closes it.
func (c *Cluster) Queues() (*Queues, error) {
	bus, err := c.Bus()
	if err != nil || bus == nil {
		return &Queues{c: c}, err
	}
	work, err := bus.WorkQueue(c.Namespace, events.QueueConfig{})
	if err != nil {
		return nil, errors.Join(err, bus.Close())
	}
	return &Queues{c: c, bus: bus, work: work}, nil
}

// List returns the prefill queue first and then the workers' queues, by name, with
// current figures. The error says why the prefill queue is missing from the list.
func (q *Queues) List(ctx context.Context, v View) ([]Queue, error) {
	var out []Queue
	var err error
	if q.bus != nil {
		var d events.Depth
		if d, err = q.depth(ctx); err == nil {
			out = append(out, Queue{Name: PrefillQueue, Kind: QueueWork, Waiting: d.Pending, InWork: d.InWork, DeadLettered: &d.DeadLettered})
		}
	}
	for _, w := range q.c.Workers(ctx, v) {
		if w.InstanceID == 0 || w.Stats.MaxSeqs == 0 || !w.Role.HoldsKV() {
			continue // the worker has no engine, or none at present
		}
		e := Queue{Name: w.Name, Kind: QueueEngine, Waiting: w.Stats.Waiting, InWork: w.Stats.Running, Limit: &w.Stats.MaxSeqs}
		if w.Role == cluster.RoleDecode {
			e.TransferWait = &w.Stats.RemoteWait
		}
		out = append(out, e)
	}
	return out, err
}

func (q *Queues) depth(ctx context.Context) (events.Depth, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	if err := connected(ctx, q.bus); err != nil {
		return events.Depth{}, fmt.Errorf("ask for the prefill queue: %w", err)
	}
	d, err := q.work.Depth(ctx)
	if err != nil {
		return d, fmt.Errorf("ask for the prefill queue: %w", err)
	}
	return d, nil
}

// Close ends the connection.
func (q *Queues) Close() error {
	if q.bus == nil {
		return nil
	}
	return q.bus.Close()
}
