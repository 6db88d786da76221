// Package gpu is the engine's backend for CUDA devices. It computes the same models as
// package cpu, over blocks of the same layout, with the kernels of internal/cuda/kernels.
//
// Start with [OpenDevice], [Device.Load] and [Weights.NewBackend]. Weights are bf16, Q8_0
// or fp8 on the device, and the backends of a process share them. A backend allocates all
// its memory when it is made and when its block pool is allocated, and none later. A step
// in which every sequence has one token, which is decoding, replays a recorded CUDA
// graph; there are graphs for several numbers of sequences and lengths. All other steps
// launch kernels in a stream of lower priority, so that a prefilling worker does not
// delay a decoding worker on the same device.
//
// A device may be a group of GPUs ([OpenGroup]), which share heads, columns of MLPs and
// the vocabulary as tensor-parallel ranks. Each rank has its part of the weights and of
// every KV block. After attention and after the MLP, the ranks' contributions to the
// residual are added in the order of ranks, so that all ranks have the same bits.
//
// Activations are rounded to bf16 after each operation. Unless [Options].BatchInvariant
// is set, a token's result may differ in its last bits with the number of tokens that a
// step computes, because small numbers of tokens use other kernels than large ones. Other
// GPU engines do the same; [engine.Backend] says what that means for answers.
//
// The package has not run on a device yet. It is tested only with an emulated driver and
// Go functions in place of the kernels (internal/lab/cuda/fake and kerneltest).
package gpu
