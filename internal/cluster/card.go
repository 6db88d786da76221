package cluster

import (
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
	// Weights is the type that most of the weights have, or that they were quantized
	// to: "bf16", "q8_0". The digest covers it.
	Weights       string        `json:"weights,omitempty"`
	ModelType     string        `json:"model_type"`  // "Chat | Completions"
	ModelInput    string        `json:"model_input"` // "Tokens"
	WorkerType    Role          `json:"worker_type"`
	ContextLength int           `json:"context_length"` // tokens
	BlockSize     int           `json:"kv_cache_block_size"`
	HashSeed      uint64        `json:"hash_seed"`
	Runtime       RuntimeConfig `json:"runtime_config"`
}

// CardFile is one tokenizer or configuration file of a model.
type CardFile struct {
	Name   string `json:"name"` // base name
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// RuntimeConfig is what a worker publishes with its card: its capacity, and how to
// read what the model writes.
type RuntimeConfig struct {
	TotalKVBlocks  int    `json:"total_kv_blocks"`
	MaxNumSeqs     int    `json:"max_num_seqs"`
	MaxBatchTokens int    `json:"max_num_batched_tokens"`
	KVDType        string `json:"kv_dtype"`
	KVBlockBytes   int64  `json:"kv_block_bytes"`
	// TensorParallel is the number of ranks that share the heads; it may differ between
	// workers that exchange KV blocks.
	TensorParallel int `json:"tensor_parallel"`
	// Disaggregated, of a prefill worker, is where decode workers meet prefills that
	// run in the background; nil if it has no such endpoint.
	Disaggregated *BootstrapEndpoint `json:"disaggregated_endpoint,omitempty"`
	// The formats of ModelSpec.
	ToolCallParser  string `json:"tool_call_parser,omitempty"`
	ReasoningParser string `json:"reasoning_parser,omitempty"`
}

// BootstrapEndpoint is where a prefill worker's bootstrap endpoint listens, on the
// request plane.
type BootstrapEndpoint struct {
	Host string `json:"bootstrap_host"`
	Port int    `json:"bootstrap_port"`
}

// Address is the endpoint as in [Transport], of the worker with this instance id.
func (e BootstrapEndpoint) Address(id InstanceID) string {
	return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) + "/" + id.String() + "/" + EndpointBootstrap
}

// DefaultHashSeed is the XXH3 seed of block hashes.
const DefaultHashSeed = 1337

// DefaultBlockSize is the number of tokens in a KV block.
const DefaultBlockSize = 64
