// Package trtllm uses servers of TensorRT-LLM (trtllm-serve).
//
// [Engine] speaks /v1/completions with token ids, and passes clients' bodies on. KV is exchanged
// in sequence (context-first) or at once (generation-first). An Engine may be used concurrently
// and starts no goroutines.
package trtllm
