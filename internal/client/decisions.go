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

// ErrNoDecisions is returned when no frontend of the cluster offers its decisions.
var ErrNoDecisions = errors.New("no frontend tells its router decisions")

// Decisions asks all frontends for the router decisions that they remember. requestID
// selects one request, or by a prefix several; empty selects the newest. Each frontend
// returns the decisions of at most limit requests, newest first. It fails with
// ErrNoDecisions, or when no frontend answers.
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

// askDecisions asks one frontend. Frontends limit the size of their answers themselves.
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
