package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// ClearedCache is the outcome of clearing the prefix cache of one worker.
type ClearedCache struct {
	Worker     string             `json:"worker"`
	InstanceID cluster.InstanceID `json:"instance_id"`
	Blocks     int                `json:"blocks"` // that it forgot
	Error      string             `json:"error,omitempty"`
}

// ErrNoCache is returned for a worker that is not up, so that it has no cache to clear.
var ErrNoCache = errors.New("is not up, and has no cache")

// holdsKV reports whether an instance is of a worker with KV blocks.
func holdsKV(i cluster.Instance) bool { return cluster.Role(i.Component).HoldsKV() }

// ClearCaches makes workers forget their prefix caches; without names all that are up
// and have one. The outcomes are sorted by worker.
func (c *Cluster) ClearCaches(ctx context.Context, v View, names ...string) []ClearedCache {
	var mu sync.Mutex
	var wg sync.WaitGroup
	sem := make(chan struct{}, 16)
	out := []ClearedCache{}
	asked := map[string]bool{}
	for _, inst := range v.Instances {
		if inst.Endpoint != cluster.EndpointClearKV || !holdsKV(inst) || len(names) > 0 && !slices.Contains(names, inst.Worker) {
			continue
		}
		asked[inst.Worker] = true
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			one := ClearedCache{Worker: inst.Worker, InstanceID: inst.InstanceID}
			list, err := askInstance[protocol.ClearedKV](ctx, c, inst, struct{}{})
			switch {
			case err == nil && len(list) != 1:
				one.Error = fmt.Sprintf("answered with %d results, not one", len(list))
			case err != nil:
				one.Error = err.Error()
			default:
				one.Blocks = list[0].Blocks
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, one)
		})
	}
	wg.Wait()
	for _, name := range names {
		if why := ErrNoCache.Error(); !asked[name] {
			if role := v.Worker(name).Role; !role.HoldsKV() {
				why = fmt.Sprintf("is an %s worker, and has no cache", role)
			}
			out = append(out, ClearedCache{Worker: name, Error: why})
		}
	}
	slices.SortFunc(out, func(a, b ClearedCache) int { return cluster.CompareNames(a.Worker, b.Worker) })
	return out
}
