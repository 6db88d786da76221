// Package kernels computes on CUDA devices: the kernels that engines put into streams,
// as PTX that a driver compiles when it loads them, and the calls that launch them.
//
// Start with [Modules], which are what a driver loads, and [Queue], whose methods check
// the shapes of an operation and launch its kernels. Everything is bf16 with sums in
// float32, rounded once for each operation unless its comment says otherwise; matrices
// are row-major, and those of weights [output][input], as checkpoints hold them. Weights
// may have eight bits, see [WeightType]. K and V lie as [kvlayout.Shape] says for bf16, so
// that blocks of CPU and CUDA workers are the same bytes. No kernel's result depends on
// what else is in the batch, nor on the order in which its blocks run.
//
// Products of bf16 with many tokens have kernels of their own for compute capability 9.0
// ([Tiles], [Queue.GatedGEMM]): copies by TMA, products by wgmma. They are modules apart, see [Exact], and what
// they compute, others compute on every device.
//
// Sources are in src: CUDA C++ without headers of a toolkit, compiled by go generate
// into ptx, with a table of what the assembler makes of each kernel. In tests the same
// sources run on the host, see shim/shim.h and shim/async.h, and so does the PTX, see package
// lab/cuda/emulator; both are compared with functions in Go (package lab/cuda/kerneltest),
// which also stand for them in a pretended driver.
//
// None of this has run on a device yet.
package kernels

//go:generate go run ../../lab/cuda/compile
