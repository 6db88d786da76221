package client

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// ModelCards returns the cards that the workers of the cluster have published.
func (c *Cluster) ModelCards(ctx context.Context) ([]cluster.ModelCard, error) {
	kvs, _, err := c.store.List(ctx, cluster.CardPrefix(c.Namespace))
	if err != nil {
		return nil, fmt.Errorf("list model cards: %w", err)
	}
	var out []cluster.ModelCard
	for _, kv := range kvs {
		card, err := store.DecodeJSON[cluster.ModelCard](kv)
		if err != nil {
			return nil, err
		}
		out = append(out, card)
	}
	return out, nil
}
