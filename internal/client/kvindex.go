package client

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrNoIndex is returned when no frontend of the cluster offers its prefix index.
var ErrNoIndex = errors.New("no frontend reports its prefix index")

// KVIndexes asks all frontends what their prefix indexes know, sorted by node. It fails
// with ErrNoIndex, or when no frontend answers.
func (c *Cluster) KVIndexes(ctx context.Context, v View, req protocol.KVIndexRequest) ([]cluster.KVIndex, error) {
	out, err := askFrontends[cluster.KVIndex](ctx, c, v, cluster.EndpointKVIndex, req, ErrNoIndex)
	slices.SortFunc(out, func(a, b cluster.KVIndex) int { return cmp.Compare(a.Frontend, b.Frontend) })
	return out, err
}
