package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// ErrNoPaths is returned when a worker is not running or does not report its paths.
var ErrNoPaths = errors.New("does not report its paths")

// Path asks a worker for its NIXL path to another one. If there is a path, the worker
// tests it first.
func (c *Cluster) Path(ctx context.Context, v View, from, to string) (cluster.Path, error) {
	ps, err := c.askPaths(ctx, v, from, protocol.PathsRequest{Peer: to, Test: true})
	if err != nil {
		return cluster.Path{}, err
	}
	if len(ps) != 1 {
		return cluster.Path{}, fmt.Errorf("%s reported %d paths to %s", from, len(ps), to)
	}
	return ps[0], nil
}

// Paths asks all workers of a role for the paths that they know. Both results are keyed
// by worker; a worker that does not answer has an error.
func (c *Cluster) Paths(ctx context.Context, v View, role cluster.Role) (map[string][]cluster.Path, map[string]error) {
	paths, failed := map[string][]cluster.Path{}, map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	sem := make(chan struct{}, 16)
	for _, inst := range v.Instances {
		if inst.Endpoint != cluster.EndpointPaths || inst.Component != role.Component() {
			continue
		}
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			ps, err := c.askPaths(ctx, v, inst.Worker, protocol.PathsRequest{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[inst.Worker] = err
				return
			}
			paths[inst.Worker] = ps
		})
	}
	wg.Wait()
	return paths, failed
}

// Measured is the result of testing the paths of a cluster.
type Measured struct {
	Paths  []cluster.Path
	Failed []error // one for each worker that did not answer
	Left   int     // pairs that the limit left untested
}

// Measure tests the paths that KV blocks take: from every prefill worker to every decode
// worker, and between decode workers, for sequences that move, each within one model. Servers of
// other engines move blocks by ways of their own. Each test takes at most each. It makes at most
// limit tests, one at a time from each worker.
func (c *Cluster) Measure(ctx context.Context, v View, each time.Duration, limit int) Measured {
	var out Measured
	to := map[string][]string{}
	var sources []string
	n := 0
	for _, a := range v.Instances {
		if a.Endpoint != cluster.EndpointPaths || !holdsKV(a) {
			continue
		}
		sources = append(sources, a.Worker)
		for _, b := range v.Instances {
			if b.Endpoint != cluster.EndpointPaths || b.Component != cluster.RoleDecode.Component() || a.Worker == b.Worker || !v.exchange(a.Worker, b.Worker) {
				continue
			}
			if n++; n > limit {
				out.Left++
				continue
			}
			to[a.Worker] = append(to[a.Worker], b.Worker)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	sem := make(chan struct{}, 4) // more tests at once would disturb each other's figures
	for _, from := range sources {
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			for _, peer := range to[from] {
				ctx, cancel := context.WithTimeout(ctx, each)
				p, err := c.Path(ctx, v, from, peer)
				cancel()
				mu.Lock()
				if err != nil {
					out.Failed = append(out.Failed, err)
				} else {
					out.Paths = append(out.Paths, p)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out.Paths, func(a, b cluster.Path) int {
		return cmp.Or(cluster.CompareNames(a.From, b.From), cluster.CompareNames(a.To, b.To))
	})
	slices.SortFunc(out.Failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return out
}

// exchange reports whether two workers exchange KV blocks with each other by our own means, as far
// as is known.
func (v View) exchange(a, b string) bool {
	for _, name := range []string{a, b} {
		if v.Assignments[name].Engine.External() {
			return false
		}
	}
	one, other := v.Assignments[a].Model, v.Assignments[b].Model
	return one.Name == other.Name || one.Name == "" || other.Name == ""
}

// askPaths asks one worker. A worker returns one path for each worker that it has met.
func (c *Cluster) askPaths(ctx context.Context, v View, worker string, req protocol.PathsRequest) ([]cluster.Path, error) {
	addr := ""
	for _, inst := range v.Instances {
		if inst.Endpoint == cluster.EndpointPaths && inst.Worker == worker {
			addr = inst.Transport.Address()
		}
	}
	if addr == "" {
		return nil, fmt.Errorf("%s %w", worker, ErrNoPaths)
	}
	stream, err := c.plane.Call(ctx, addr, requestID("paths"), nil, req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its paths: %w", worker, err)
	}
	defer stream.Close()
	out, err := receiveAll[cluster.Path](ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its paths: %w", worker, err)
	}
	return out, nil
}

// receiveAll returns the answers of a stream until its end. With an error it returns
// those that came before.
func receiveAll[T any](ctx context.Context, stream requestplane.Stream) ([]T, error) {
	var out []T
	for {
		var one T
		switch err := stream.Recv(ctx, &one); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
		out = append(out, one)
	}
}
