package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
)

// ModelCard describes a served model: identity, limits, and where its tokenizer
// files are. A worker publishes it under its lease; frontends read it. Workers
// whose digests differ cannot exchange KV blocks.
type ModelCard struct {
	DisplayName string `json:"display_name"`
	// Digest is a hash over config, tokenizer and weight index.
	Digest string     `json:"mdcsum"`
	Files  []CardFile `json:"files"`
	// Weights is the type of most of the weights, as stored or after quantization:
	// "bf16", "q8_0". The digest covers it.
	Weights       string        `json:"weights,omitempty"`
	ModelType     string        `json:"model_type"`  // "Chat | Completions"
	ModelInput    string        `json:"model_input"` // InputTokens or InputText
	WorkerType    Role          `json:"worker_type"`
	ContextLength int           `json:"context_length"` // tokens
	BlockSize     int           `json:"kv_cache_block_size"`
	HashSeed      uint64        `json:"hash_seed"`
	Runtime       RuntimeConfig `json:"runtime_config"`
	// Images is nil for a model that takes nothing but text.
	Images *ImageCard `json:"images,omitempty"`
	// Adapters are the LoRA adapters of the model that this worker's server has now, sorted:
	// each is served as a model of its own. See [MaxAdapters].
	Adapters []string `json:"lora_adapters,omitempty"`
}

// ImageCard says how images stand in prompts of a model.
type ImageCard struct {
	// Token is the placeholder for one embedding of an image.
	Token uint32 `json:"token"`
}

// CardFile is one tokenizer or configuration file of a model.
type CardFile struct {
	Name   string `json:"name"` // base name
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// RuntimeConfig is the part of a model card that depends on the worker: its capacity, and
// the parsers for the model's output.
type RuntimeConfig struct {
	TotalKVBlocks  int    `json:"total_kv_blocks"`
	MaxNumSeqs     int    `json:"max_num_seqs"`
	MaxBatchTokens int    `json:"max_num_batched_tokens"`
	KVDType        string `json:"kv_dtype"`
	KVBlockBytes   int64  `json:"kv_block_bytes"`
	// TensorParallel is the number of ranks that share the heads; it may differ between
	// workers that exchange KV blocks.
	TensorParallel int `json:"tensor_parallel"`
	// Taints are labels of the worker's node, which requests can require or prefer.
	Taints []string `json:"taints,omitempty"`
	// Disaggregated is the bootstrap endpoint of a prefill worker, where decode workers
	// join prefills that run in the background. It is nil if the worker has no such
	// endpoint.
	Disaggregated *BootstrapEndpoint `json:"disaggregated_endpoint,omitempty"`
	// Backend is the engine that others wrote, one of [ExternalBackends]; empty for the
	// built-in one. Pair is equal for servers of it that can exchange KV, and Exchange is the
	// order of the legs, empty if they exchange none; see package external.
	Backend  string `json:"backend,omitempty"`
	Pair     string `json:"pair,omitempty"`
	Exchange string `json:"exchange,omitempty"`
	// NeedsPrefill is set for decode workers whose engine computes no prompts itself.
	NeedsPrefill bool `json:"needs_prefill,omitempty"`
	// Meets is where decode workers of such an engine meet this prefill worker; nil if they
	// do not.
	Meets *ServerPlace `json:"meets,omitempty"`
	// The formats of ModelSpec.ToolParser and ModelSpec.ReasoningParser.
	ToolCallParser  string `json:"tool_call_parser,omitempty"`
	ReasoningParser string `json:"reasoning_parser,omitempty"`
}

// Values of [ModelCard.ModelInput].
const (
	InputTokens = "Tokens"
	InputText   = "Text" // prompts are sent as the client's body: only the engine tokenizes
)

// ServerPlace is where servers of an engine that others wrote meet to exchange KV.
type ServerPlace struct {
	Host   string          `json:"host"`
	Port   int             `json:"port"`
	Params json.RawMessage `json:"params,omitempty"` // for decode servers, opaque
}

// BootstrapEndpoint is the place of a prefill worker's bootstrap endpoint on the request
// plane: a host and a port, or a subject of NATS.
type BootstrapEndpoint struct {
	Host string `json:"bootstrap_host"`
	Port int    `json:"bootstrap_port"`
	// HTTP says that it is on the http request plane.
	HTTP bool `json:"bootstrap_http,omitempty"`
	// Subject is set on the nats request plane, in place of Host and Port.
	Subject string `json:"bootstrap_subject,omitempty"`
}

// BootstrapAt returns the endpoint whose address on the request plane is addr.
func BootstrapAt(addr string) (*BootstrapEndpoint, error) {
	at, plane := SplitPlane(addr)
	if plane == PlaneNATS {
		return &BootstrapEndpoint{Subject: at}, nil
	}
	host, text, err := net.SplitHostPort(at)
	if err != nil {
		return nil, fmt.Errorf("address of the bootstrap endpoint: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("port of the bootstrap endpoint: %w", err)
	}
	return &BootstrapEndpoint{Host: host, Port: port, HTTP: plane == PlaneHTTP}, nil
}

// Address returns the address of the endpoint on the request plane, for the worker
// with this instance id.
func (e BootstrapEndpoint) Address(id InstanceID) string {
	at, plane := net.JoinHostPort(e.Host, strconv.Itoa(e.Port)), PlaneTCP
	switch {
	case e.Subject != "":
		at, plane = e.Subject, PlaneNATS
	case e.HTTP:
		plane = PlaneHTTP
	}
	return plane.Server(at) + "/" + id.String() + "/" + EndpointBootstrap
}

// DefaultHashSeed is the XXH3 seed of block hashes.
const DefaultHashSeed = 1337

// DefaultBlockSize is the number of tokens in a KV block.
const DefaultBlockSize = 64
