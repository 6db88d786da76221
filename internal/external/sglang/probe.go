package sglang

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// defaultBootstrapPort is that of --disaggregation-bootstrap-port.
const defaultBootstrapPort = 8998

// serverInfo is what a server tells of its arguments.
type serverInfo struct {
	Version       string `json:"version"`
	Model         string `json:"model_path"`
	Mode          string `json:"disaggregation_mode"` // null, prefill or decode
	BootstrapPort int    `json:"disaggregation_bootstrap_port"`
	Transfer      string `json:"disaggregation_transfer_backend"`
	DistInit      string `json:"dist_init_addr"`
	TP            int    `json:"tp_size"`
	DP            int    `json:"dp_size"`
	PageSize      int    `json:"page_size"`
	KVType        string `json:"kv_cache_dtype"`
	Context       int    `json:"context_length"`
	MaxRunning    int    `json:"max_running_requests"`
	MaxTokens     int    `json:"max_total_num_tokens"`
	MemorySaver   bool   `json:"enable_memory_saver"`
	WeightsBackup bool   `json:"enable_weights_cpu_backup"`
}

// infoPaths are where a server tells its arguments.
var infoPaths = []string{"/server_info", "/get_server_info"}

func readInfo(b []byte) (s serverInfo, err error) {
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("/server_info: %w", err)
	}
	return s, nil
}

func (e *Engine) serverInfo(ctx context.Context) (serverInfo, error) {
	b, err := e.first(ctx, infoPaths)
	if err != nil {
		return serverInfo{}, err
	}
	return readInfo(b)
}

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
	models, err := e.client.Models(ctx, e.config.Model, &f)
	if err != nil {
		return f, err
	}
	b, err := e.first(ctx, infoPaths)
	if err != nil {
		return f, wire.Ready(err)
	}
	s, err := readInfo(b)
	if err != nil {
		return f, err
	}
	f.Version, f.BlockSize, f.KVDType, f.TensorParallel, f.MaxSeqs, f.Ranks = s.Version, max(s.PageSize, 0), s.KVType, max(s.TP, 0), max(s.MaxRunning, 0), max(s.DP, 0)
	if f.BlockSize > 0 {
		f.KVBlocks = max(s.MaxTokens, 0) / f.BlockSize * max(s.DP, 1)
	}
	if f.MaxModelLen == 0 {
		f.MaxModelLen = max(s.Context, 0)
	}
	if f.Mode = s.Mode; f.Mode == "null" {
		f.Mode = ""
	}
	if err := e.checkMode(f.Mode); err != nil {
		return f, err
	}
	if e.connector == connectorBootstrap && f.Mode == string(cluster.RolePrefill) {
		f.Meets = e.place(s)
	}
	root := s.Model
	if root == "" {
		root = wire.Base(models, e.config.Model).ID
	}
	f.Pair = e.config.PairKey(s.Transfer, s.Version, root, s.KVType, "tp"+strconv.Itoa(s.TP), "page"+strconv.Itoa(s.PageSize))
	return f, nil
}

// checkMode compares what the server was started for with what it is to be used for.
func (e *Engine) checkMode(mode string) error {
	role := string(e.config.Role)
	switch {
	case e.connector == wire.ConnectorNone && mode != "":
		return fmt.Errorf("the server was started with --disaggregation-mode %s, and answers nothing alone: set connector to %s", mode, connectorBootstrap)
	case e.connector == wire.ConnectorNone || role == "":
		return nil
	case mode == "" && role == string(cluster.RolePrefill):
		return fmt.Errorf("the server was started without --disaggregation-mode prefill: it computes no prompts for others")
	case mode != "" && mode != role:
		return fmt.Errorf("the server was started with --disaggregation-mode %s, and is configured as %s", mode, role)
	}
	return nil
}

// place says where decode servers meet this one. A server of several nodes has its bootstrap
// server where its ranks meet.
func (e *Engine) place(s serverInfo) *cluster.ServerPlace {
	p := &cluster.ServerPlace{Host: e.config.Engine.Server.Host, Port: e.config.Engine.Server.BootstrapPort}
	if p.Host == "" {
		p.Host = e.client.Host()
		if host, _, err := net.SplitHostPort(s.DistInit); err == nil && host != "" {
			p.Host = host
		}
	}
	if p.Port == 0 {
		p.Port = s.BootstrapPort
	}
	if p.Port <= 0 || p.Port > 65535 {
		p.Port = defaultBootstrapPort
	}
	return p
}

// Load implements external.Engine. Without metrics, which take --enable-metrics, nothing is
// known.
func (e *Engine) Load(ctx context.Context) (external.Load, error) {
	b, err := e.client.Get(ctx, "/metrics")
	if err != nil {
		return external.Load{}, wire.Remote(ctx, wire.Optional(err))
	}
	m := wire.ParseMetrics(b, func(name string) bool {
		return strings.HasPrefix(name, "sglang:") && !strings.HasSuffix(name, "_bucket")
	})
	return external.Load{
		Running:   m.Int("sglang:num_running_reqs"),
		Waiting:   m.Int("sglang:num_queue_reqs"),
		KVUsage:   m.Share("sglang:token_usage"),
		Prompt:    m.Count("sglang:prompt_tokens_total"),
		Generated: m.Count("sglang:generation_tokens_total"),
	}, nil
}
