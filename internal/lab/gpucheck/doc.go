// Package gpucheck proves and measures the CUDA kernels on a machine that has a GPU, and
// NVIDIA's driver, but perhaps nothing else: no compiler, no network, and little time.
//
// Start with [Run], which goes through the phases of [Phases]: the driver and what it
// makes of the kernels, every kernel against its function in Go (package kerneltest), what
// the memory can do at best, every kernel in shapes of real models, results to be kept, and
// memory shared by two processes. Every [Case] has a name; it can be chosen and left out,
// and its [Result] is a line of JSON in a file as soon as it is there. Run again goes on
// where it was stopped.
//
// The cases of a phase run in a process of their own ([Child]). One that hangs, loses the
// device or crashes is noted, and a new process goes on with the next.
//
// Over the pretended driver ([Options.Pretended]) everything runs in seconds, in small
// shapes. Its times mean nothing, and its results say that they are pretended.
//
// None of this has run on hardware yet.
package gpucheck
