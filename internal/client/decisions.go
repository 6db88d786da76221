package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrNoDecisions is returned when no frontend of the cluster tells its decisions.
var ErrNoDecisions = errors.New("no frontend tells its router decisions")

// Decisions asks all frontends for the router decisions that they remember: about the
// request of that id, about those whose id begins so, or about the newest ones. There are
// those of at most limit requests from each frontend, the newest first. It fails with
// ErrNoDecisions, and when none of the frontends answers.
func (c *Cluster) Decisions(ctx context.Context, v View, requestID string, limit int) ([]cluster.RouterDecision, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var out []cluster.RouterDecision
	var failed []error
	asked := 0
	for _, inst := range v.Instances {
		if inst.Component != cluster.ComponentFrontend || inst.Endpoint != cluster.EndpointDecisions {
			continue
		}
		asked++
		wg.Go(func() {
			list, err := c.askDecisions(ctx, inst, protocol.DecisionsRequest{RequestID: requestID, Limit: limit})
			mu.Lock()
			defer mu.Unlock()
			out = append(out, list...)
			if err != nil {
				failed = append(failed, fmt.Errorf("frontend of node %s: %w", v.NodeName(inst.Node), err))
			}
		})
	}
	wg.Wait()
	switch {
	case asked == 0:
		return nil, ErrNoDecisions
	case len(failed) == asked:
		return nil, errors.Join(failed...)
	}
	slices.SortStableFunc(out, func(a, b cluster.RouterDecision) int { return b.Time.Compare(a.Time) })
	return out, nil
}

// askDecisions asks one frontend. It bounds its answer itself.
func (c *Cluster) askDecisions(ctx context.Context, inst cluster.Instance, req protocol.DecisionsRequest) ([]cluster.RouterDecision, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	stream, err := c.plane.Call(ctx, inst.Transport.TCP, "decisions-"+hex.EncodeToString(id[:]), nil, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return receiveAll[cluster.RouterDecision](ctx, stream)
}
