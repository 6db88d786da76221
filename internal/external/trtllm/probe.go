package trtllm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// Probe implements external.Engine.
func (e *Engine) Probe(ctx context.Context) (external.Facts, error) {
	f, err := e.probe(ctx)
	if err != nil && ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	return f, err
}

func (e *Engine) probe(ctx context.Context) (external.Facts, error) {
	var f external.Facts
	if _, err := e.client.Get(ctx, "/health"); err != nil {
		return f, wire.Ready(err)
	}
	models, err := e.client.Models(ctx, e.config.Model, &f)
	if err != nil {
		return f, err
	}
	var v struct {
		Version string `json:"version"`
	}
	if err := wire.Optional(e.client.GetJSON(ctx, "/version", &v)); err != nil {
		return f, wire.Ready(err)
	}
	f.Version = v.Version
	m, err := e.metrics(ctx)
	if err != nil {
		return f, wire.Ready(err)
	}
	if n := m.Largest("trtllm_kv_cache_tokens_per_block"); n != nil && *n >= 1 && *n <= 1<<20 {
		f.BlockSize = int(*n)
	}
	if n := m.Int("trtllm_kv_cache_max_blocks"); n != nil {
		f.KVBlocks = *n
	}
	if e.connector == generationFirst && e.config.Role == cluster.RolePrefill {
		if f.Meets, err = e.place(ctx); err != nil {
			return f, err
		}
	}
	f.Pair = e.config.PairKey(f.Version, wire.Base(models, e.config.Model).ID)
	return f, nil
}

// place asks a context server what generation servers must know.
func (e *Engine) place(ctx context.Context) (*cluster.ServerPlace, error) {
	var s struct {
		Params json.RawMessage `json:"disaggregated_params"`
	}
	if err := e.client.GetJSON(ctx, "/server_info", &s); err != nil {
		return nil, wire.Ready(err)
	}
	if _, err := wire.ParseBody(s.Params); err != nil {
		return nil, fmt.Errorf("the server's /server_info has no disaggregated_params: it knows no generation-first exchange (connector context-first may do)")
	}
	host := e.config.Engine.Server.Host
	if host == "" {
		host = e.client.Host()
	}
	return &cluster.ServerPlace{Host: host, Port: e.client.Port(), Params: s.Params}, nil
}

func (e *Engine) metrics(ctx context.Context) (wire.Metrics, error) {
	b, err := e.client.Get(ctx, "/prometheus/metrics")
	if err != nil {
		return nil, wire.Optional(err)
	}
	return wire.ParseMetrics(b, func(name string) bool {
		return strings.HasPrefix(name, "trtllm_") && !strings.HasSuffix(name, "_bucket")
	}), nil
}

// Load implements external.Engine. /metrics is not asked: it has statistics that go to
// whoever asks first.
func (e *Engine) Load(ctx context.Context) (external.Load, error) {
	m, err := e.metrics(ctx)
	if err != nil {
		return external.Load{}, wire.Remote(ctx, err)
	}
	return external.Load{
		Running: m.Int("trtllm_num_requests_running"),
		Waiting: m.Int("trtllm_num_requests_waiting"),
		KVUsage: m.Share("trtllm_kv_cache_utilization"),
	}, nil
}
