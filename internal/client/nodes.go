package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Nodes returns the nodes of a view with current figures of their GPUs. The store holds
// only the inventory, so it asks the nodes that have GPUs. A node that does not answer
// within a second keeps the figures of the view.
func (c *Cluster) Nodes(ctx context.Context, v View) []cluster.Node {
	return withFigures(v.Nodes, c.askNodes(ctx, v))
}

// withFigures returns nodes with the newer GPU reports; reports is keyed by node id.
func withFigures(nodes []cluster.Node, reports map[string]cluster.GPUReport) []cluster.Node {
	out := slices.Clone(nodes)
	for i := range out {
		if r, ok := reports[out[i].ID]; ok {
			out[i].GPU = &r
		}
	}
	return out
}

// askNodes asks every node that has GPUs for its figures.
func (c *Cluster) askNodes(ctx context.Context, v View) map[string]cluster.GPUReport {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out := map[string]cluster.GPUReport{}
	sem := make(chan struct{}, 16)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, inst := range v.Instances {
		if inst.Component != cluster.ComponentAgent || inst.Endpoint != cluster.EndpointNodeStats || inst.Transport.Address() == "" {
			continue
		}
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			stream, err := c.plane.Call(ctx, inst.Transport.Address(), "node-stats", nil, nil)
			if err != nil {
				return
			}
			defer stream.Close()
			var st cluster.NodeStats
			if stream.Recv(ctx, &st) != nil || st.NodeID != inst.Node {
				return // another node now has its address
			}
			mu.Lock()
			defer mu.Unlock()
			out[st.NodeID] = st.GPU
		})
	}
	wg.Wait()
	return out
}

// nodeFigures holds the latest GPU report of each node, by node id.
type nodeFigures map[string]heardReport

type heardReport struct {
	cluster.GPUReport
	at time.Time // by the observer's clock
}

// fresh returns the reports that are not older than [cluster.SilentAfter] and deletes the
// others.
func (f nodeFigures) fresh(now time.Time) map[string]cluster.GPUReport {
	out := make(map[string]cluster.GPUReport, len(f))
	for id, h := range f {
		if now.Sub(h.at) > cluster.SilentAfter {
			delete(f, id)
			continue
		}
		out[id] = h.GPUReport
	}
	return out
}
