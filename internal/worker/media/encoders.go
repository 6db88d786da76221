package media

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Encoders are the encode workers that a worker may ask.
type Encoders struct {
	*runtime.Client

	mu       sync.Mutex
	inFlight map[cluster.InstanceID]int // parts that an encode worker has from here
}

// Follow follows the encode workers of an endpoint.
func Follow(ctx context.Context, host Host, of cluster.Endpoint) (*Encoders, error) {
	c, err := host.Client(ctx, of)
	if err != nil {
		return nil, err
	}
	return &Encoders{Client: c, inFlight: map[cluster.InstanceID]int{}}, nil
}

// maxTries bounds the encode workers that are asked for one part.
const maxTries = 3

// Order lists the encode workers that are asked for a key: the same content goes to the same
// worker, which has it in its cache, unless that has much more to do for this one than another.
// chosen says why the first one is the first. A nil e knows none.
func (e *Encoders) Order(key []byte) (_ []cluster.Instance, chosen string) {
	if e == nil {
		return nil, ""
	}
	all := slices.Clone(e.Instances())
	rank := make(map[cluster.InstanceID][]byte, len(all))
	for _, i := range all {
		sum := sha256.Sum256(slices.Concat(key, []byte(i.InstanceID.String())))
		rank[i.InstanceID] = sum[:]
	}
	slices.SortFunc(all, func(a, b cluster.Instance) int { return bytes.Compare(rank[a.InstanceID], rank[b.InstanceID]) })
	e.mu.Lock()
	defer e.mu.Unlock()
	busy := func(i cluster.Instance) int { return e.inFlight[i.InstanceID] }
	if len(all) > 0 {
		least := slices.MinFunc(all, func(a, b cluster.Instance) int { return cmp.Compare(busy(a), busy(b)) })
		at := slices.IndexFunc(all, func(i cluster.Instance) bool { return busy(i) <= busy(least)+1 })
		first := all[at]
		chosen = "first by content"
		if at > 0 {
			chosen = fmt.Sprintf("%s is first by content, and has %d images of this worker in hand, %d more than another", all[0].Worker, busy(all[0]), busy(all[0])-busy(least))
		}
		all = slices.Insert(slices.Delete(all, at, at+1), 0, first)
	}
	return all[:min(len(all), maxTries)], chosen
}

// Busy counts d more parts that an encode worker has from here.
func (e *Encoders) Busy(id cluster.InstanceID, d int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inFlight[id] += d; e.inFlight[id] == 0 {
		delete(e.inFlight, id)
	}
}
