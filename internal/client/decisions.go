package client

import (
	"context"
	"errors"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrNoDecisions is returned when no frontend of the cluster offers its decisions.
var ErrNoDecisions = errors.New("no frontend reports its router decisions")

// Decisions asks all frontends for the router decisions that they remember. requestID
// selects one request, or by a prefix several; empty selects the newest. Each frontend
// returns the decisions of at most limit requests, newest first. It fails with
// ErrNoDecisions, or when no frontend answers.
func (c *Cluster) Decisions(ctx context.Context, v View, requestID string, limit int) ([]cluster.RouterDecision, error) {
	req := protocol.DecisionsRequest{RequestID: requestID, Limit: limit}
	out, err := askFrontends[cluster.RouterDecision](ctx, c, v, cluster.EndpointDecisions, req, ErrNoDecisions)
	slices.SortStableFunc(out, func(a, b cluster.RouterDecision) int { return b.Time.Compare(a.Time) })
	return out, err
}
