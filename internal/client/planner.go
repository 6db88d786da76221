package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// PlannerReport returns the newest decision of the planner, or nil if there is none: it is off, nobody leads, or
// too little was seen.
func (c *Cluster) PlannerReport(ctx context.Context) (*planner.Report, error) {
	r, _, err := store.GetJSON[planner.Report](ctx, c.store, cluster.PlannerKey(c.Namespace))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the planner's decision: %w", err)
	}
	return &r, nil
}

// PlannerMode returns planner.mode in effect: what the cluster sets, or else the configuration of the node that
// leads; empty if neither says.
func (c *Cluster) PlannerMode(ctx context.Context, v View, leader string) (string, error) {
	const name = "planner.mode"
	settings, err := c.Settings(ctx)
	if err != nil {
		return "", err
	}
	var mode string
	if raw, set := settings[name]; set && json.Unmarshal(raw, &mode) == nil {
		return mode, nil
	}
	for _, n := range v.Nodes {
		if n.Name == leader {
			return n.Settings[name].Value, nil
		}
	}
	return "", nil
}
