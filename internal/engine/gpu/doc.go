// Package gpu is the backend of engines on CUDA devices: it computes the same models as
// package cpu, over blocks of the same layout, with the kernels of internal/cuda/kernels.
//
// Start with [OpenDevice], [Device.Load] and [Weights.NewBackend]. Weights are bf16, Q8_0 or fp8 on the
// device, shared by the backends of a process. A backend takes all its memory when it is
// made and when its block pool is allocated, and none later. Steps in which every sequence
// has one token, which is what decoding is, are replayed as graphs that were recorded for
// numbers of sequences and lengths; all others put kernels into a stream of lower
// priority, so that a worker that prefills does not hold up one that decodes on the same
// device.
//
// A device may be a group of GPUs ([OpenGroup]), which share heads, columns of MLPs and the
// vocabulary as tensor-parallel ranks: each has its part of the weights and of every KV
// block, and what they compute of the residual is added up after attention and after the
// MLP, in the order of ranks, so that all have the same bits.
//
// Activations are rounded to bf16 after each operation. Unless
// [Options].BatchInvariant is set, a token's result may differ in its last bits with the
// number of tokens that a step computes: few are multiplied and attend in other kernels
// than many. That is what other GPU engines do, too; [engine.Backend] says what it means for
// answers.
//
// None of this has run on a device yet: it is proven over a pretended driver, with
// functions in Go that stand for the kernels (internal/lab/cuda/fake and kerneltest).
package gpu
