package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
)

// askFrontends sends a question to an endpoint of all frontends at once and returns their
// answers in no order. none is returned when no frontend has the endpoint. Otherwise it
// fails when no frontend answers.
func askFrontends[T any](ctx context.Context, c *Cluster, v View, endpoint string, question any, none error) ([]T, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var out []T
	var failed []error
	asked := 0
	for _, inst := range v.Instances {
		if inst.Component != cluster.ComponentFrontend || inst.Endpoint != endpoint {
			continue
		}
		asked++
		wg.Go(func() {
			list, err := askInstance[T](ctx, c, inst, question)
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
		return nil, none
	case len(failed) == asked:
		return nil, errors.Join(failed...)
	}
	return out, nil
}

// askInstance sends a question to one instance. Instances limit the size of their answers
// themselves.
func askInstance[T any](ctx context.Context, c *Cluster, inst cluster.Instance, question any) ([]T, error) {
	stream, err := c.plane.Call(ctx, inst.Transport.Address(), requestID(inst.Endpoint), nil, question)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return receiveAll[T](ctx, stream)
}
