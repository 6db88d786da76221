package frontend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime"
)

// cleared is the answer to a request to clear the workers' prefix caches, in Dynamo's
// form.
type cleared struct {
	Message string          `json:"message,omitempty"` // instead of both lists
	Cleared []clearedWorker `json:"cleared_workers,omitzero"`
	Failed  []clearedWorker `json:"failed_workers,omitzero"`
}

type clearedWorker struct {
	Name       string             `json:"name"`
	InstanceID cluster.InstanceID `json:"instance_id"`
	Endpoint   string             `json:"endpoint"`
	Status     string             `json:"status"`
	Response   *clearedBlocks     `json:"response,omitempty"`
	Error      string             `json:"error,omitempty"`
}

type clearedBlocks struct {
	Blocks int `json:"blocks"`
}

// clearCaches makes all decode and prefill workers forget their prefix caches. A failure
// is the worker's alone.
func (f *Frontend) clearCaches(ctx context.Context) cleared {
	ctx, cancel := context.WithTimeout(ctx, f.limits.clear)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	sem := make(chan struct{}, 16)
	out := cleared{Cleared: []clearedWorker{}, Failed: []clearedWorker{}}
	for _, c := range f.clearing {
		for _, inst := range c.All() {
			wg.Go(func() {
				sem <- struct{}{}
				defer func() { <-sem }()
				one := clearedWorker{Name: inst.Worker, InstanceID: inst.InstanceID, Endpoint: inst.Namespace + "/" + inst.Component + "/" + inst.Endpoint}
				n, err := clearCache(ctx, c, inst)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					one.Status, one.Error = "Failed to clear kv blocks", err.Error()
					out.Failed = append(out.Failed, one)
					return
				}
				one.Status, one.Response = "Successfully cleared kv blocks", &clearedBlocks{n}
				out.Cleared = append(out.Cleared, one)
			})
		}
	}
	wg.Wait()
	if len(out.Cleared)+len(out.Failed) == 0 {
		return cleared{Message: "No active worker groups found"}
	}
	for _, list := range [][]clearedWorker{out.Cleared, out.Failed} {
		slices.SortFunc(list, func(a, b clearedWorker) int { return cluster.CompareNames(a.Name, b.Name) })
	}
	return out
}

// clearCache clears the cache of one worker and returns how many blocks it forgot.
func clearCache(ctx context.Context, c *runtime.Client, inst cluster.Instance) (blocks int, err error) {
	stream, err := c.Call(ctx, inst, newID("clear-"), nil, struct{}{})
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	var n protocol.ClearedKV
	if err := stream.Recv(ctx, &n); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer in time: %w", err)
		}
		return 0, err
	}
	return n.Blocks, nil
}

// clearKVBlocks is Dynamo's route: failures are told in the answer, whose status is 200.
func (f *Frontend) clearKVBlocks(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, f.clearCaches(r.Context()))
}

// flushCache is SGLang's route: its status is 400 if a worker fails.
func (f *Frontend) flushCache(w http.ResponseWriter, r *http.Request) {
	out, status := f.clearCaches(r.Context()), http.StatusOK
	if len(out.Failed) > 0 {
		status = http.StatusBadRequest
	}
	writeJSON(w, status, out)
}
