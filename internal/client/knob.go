package client

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// SetKnob changes one run-time setting of the cluster, for example
// "disagg.max_local_prefill_tokens"; workers take it up at once.
func (c *Cluster) SetKnob(ctx context.Context, name string, value any) error {
	if _, err := store.PutJSON(ctx, c.store, cluster.KnobKey(c.Namespace, name), value); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}
