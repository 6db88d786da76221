package vllm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
	f.Adapters = wire.Adapters(models, e.config.Model)
	d, err := e.learn(ctx)
	if err != nil {
		return f, wire.Ready(err)
	}
	f.Version = d.version
	m, err := e.metrics(ctx)
	if err != nil {
		return f, wire.Ready(err)
	}
	readCache(m, &f)
	if e.connector == connectorMooncake {
		// Mooncake holds servers to their role, which cannot be asked.
		f.Mode = string(e.config.Role)
	}
	if e.bootstrap != nil {
		if f.Meets, err = e.place(ctx); err != nil {
			return f, err
		}
	}
	base := wire.Base(models, e.config.Model)
	root := base.Root
	if root == "" {
		root = base.ID
	}
	f.Pair = e.config.PairKey(f.Version, root, f.KVDType)
	return f, nil
}

// place asks Mooncake's bootstrap server of this prefill server for its engines.
func (e *Engine) place(ctx context.Context) (*cluster.ServerPlace, error) {
	params, err := e.bootstrap.Get(ctx, "/query")
	if err != nil {
		return nil, fmt.Errorf("%w: bootstrap server of Mooncake (bootstrap_port %d): %w", external.ErrNotReady, e.bootstrapPort(), err)
	}
	if _, err := readEngines(params); err != nil {
		return nil, fmt.Errorf("%w: %w", external.ErrNotReady, err)
	}
	host := e.config.Engine.Server.Host
	if host == "" {
		host = e.client.Host()
	}
	return &cluster.ServerPlace{Host: host, Port: e.bootstrapPort(), Params: params}, nil
}

const (
	running     = "vllm:num_requests_running"
	cacheConfig = "vllm:cache_config_info"
)

func (e *Engine) metrics(ctx context.Context) (wire.Metrics, error) {
	b, err := e.client.Get(ctx, "/metrics")
	if err != nil {
		return nil, wire.Optional(err)
	}
	return wire.ParseMetrics(b, func(name string) bool { return strings.HasPrefix(name, "vllm:") && !strings.HasSuffix(name, "_bucket") }), nil
}

// readCache reads the shape of the KV cache, which a server tells as labels, for each rank.
func readCache(m wire.Metrics, f *external.Facts) {
	if sizes := m.Label("block_size", cacheConfig); len(sizes) > 0 {
		if n, err := strconv.Atoi(sizes[0]); err == nil && n > 0 && n <= 1<<20 {
			f.BlockSize = n
		}
	}
	for _, blocks := range m.Label("num_gpu_blocks", cacheConfig) {
		if n, err := strconv.Atoi(blocks); err == nil && n > 0 && n <= 1<<31 {
			f.KVBlocks += n
		}
	}
	if types := m.Label("cache_dtype", cacheConfig); len(types) > 0 {
		f.KVDType = types[0]
	}
	ranks := m.Label("engine", running)
	slices.Sort(ranks)
	f.Ranks = len(slices.Compact(ranks))
}

// Load implements external.Engine.
func (e *Engine) Load(ctx context.Context) (external.Load, error) {
	m, err := e.metrics(ctx)
	if err != nil {
		return external.Load{}, wire.Remote(ctx, err)
	}
	return external.Load{
		Running:       m.Int(running),
		Waiting:       m.Int("vllm:num_requests_waiting"),
		KVUsage:       m.Share("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
		PrefixHits:    m.Count("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits"),
		PrefixLookups: m.Count("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries"),
		Prompt:        m.Count("vllm:prompt_tokens_total"),
		Generated:     m.Count("vllm:generation_tokens_total"),
	}, nil
}
