// Package cpu computes language models on processor cores: an [engine.Backend] in
// portable Go, which is the reference that other backends are compared with, and with
// kernels for AVX2, AVX-512 and AMX where the machine has them.
//
// Start with [NewDevice], which starts a pool of workers for a set of cores,
// [Device.Load], which prepares a model's weights for it, and
// [Weights.NewBackend].
//
// A Device owns its worker goroutines; Close awaits them. Weights and backends
// belong to their device and share its pool: steps of several backends take
// turns, decode-only steps first. Weights may be used by many backends; one
// backend runs one step at a time. Weights are read where the model mapped them,
// so the model must stay open; with kernels most are a packed copy, which
// [Weights.Close] frees. The KV memory belongs to the caller.
//
// Activations are float32, or bf16 beside weights of bf16 ([DeviceOptions]).
//
// Every sum has a fixed order, so results are the same bits whatever else is in
// the batch, however a prompt was cut into chunks, and however many cores work.
// DESIGN.md says how.
//
// It does not schedule, sample, tokenize, or keep track of blocks.
package cpu
