// Package cpu computes language models on processor cores. It is an [engine.Backend] in
// portable Go, the reference that other backends are compared with, and has kernels for
// AVX2, AVX-512, AMX and NEON.
//
// Start with [NewDevice], which starts a pool of workers for a set of cores.
// [Device.Load] prepares a model's weights for it, and [Weights.NewBackend] makes a
// backend.
//
// A Device owns its worker goroutines; Close waits for them. Weights and backends belong
// to their device and share its pool. Steps of several backends take turns, decode-only
// steps first. Many backends may use the same weights; one backend runs one step at a
// time.
//
// Weights are read where the model mapped them, so the model must stay open. With kernels
// most weights are a packed copy, which [Weights.Close] frees. The caller owns the KV
// memory.
//
// Activations are float32, or bf16 beside weights of bf16 ([DeviceOptions]).
//
// Every sum has a fixed order. So results have the same bits whatever else is in the
// batch, however a prompt was cut into chunks, and however many cores work. DESIGN.md
// explains how.
//
// The package does not schedule, sample, tokenize, or keep track of blocks.
package cpu
