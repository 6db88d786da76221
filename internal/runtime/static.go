package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// StaticInstance describes an endpoint that a runtime without discovery serves at an
// address, that of its server. The id follows from both, and fits into a float64.
func StaticInstance(e cluster.Endpoint, address string) cluster.Instance {
	h := fnv.New64a()
	_, _ = h.Write([]byte(address + "/" + e.String())) // never fails
	return cluster.Instance{
		Type: cluster.InstanceType, Namespace: e.Namespace, Component: e.Component, Endpoint: e.Name,
		InstanceID: cluster.InstanceID(h.Sum64() & (1<<53 - 1)),
		Transport:  cluster.TransportTo(address + "/" + staticPath(e)),
		Codec:      codecMsgpack,
	}
}

// staticPath is the path of an endpoint on the request plane that callers can know without
// discovery.
func staticPath(e cluster.Endpoint) string { return e.Namespace + "." + e.Component + "." + e.Name }

// staticStore returns a store of this process with the given instances.
func staticStore(ctx context.Context, peers []cluster.Instance) (*store.Memory, error) {
	m := store.NewMemory(nil)
	for _, inst := range peers {
		body, err := json.Marshal(inst)
		if err == nil {
			err = inst.Of().Check()
		}
		if err == nil {
			_, err = m.Put(ctx, inst.Key(), body)
		}
		if err != nil {
			_ = m.Close() // nothing uses it yet
			return nil, fmt.Errorf("static instance of %s: %w", inst.Of(), err)
		}
	}
	return m, nil
}
