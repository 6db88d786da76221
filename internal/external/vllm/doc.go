// Package vllm uses servers of vLLM, and those that speak as it does, such as
// llm-d-inference-sim.
//
// [Engine] speaks /v1/completions with token ids, or /inference/v1/generate where that is what
// the server tells tokens by, and passes clients' bodies on. KV is exchanged by the connectors
// NIXL, in sequence, and Mooncake, at once. An Engine may be used concurrently and starts no
// goroutines.
//
// Which connector a server has cannot be asked: it is configured.
package vllm
