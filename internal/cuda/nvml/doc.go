// Package nvml reads the figures of NVIDIA's GPUs through NVML, the library behind
// nvidia-smi, which is loaded at run time and may be missing.
//
// Start with [Open], whose errors say why there are no figures and what to do, then
// [NVML.Report] as often as figures are wanted; it takes some milliseconds, and may be
// called by several goroutines. It can take for ever when a GPU hangs, as nvidia-smi
// then does: callers must be able to continue without it.
//
// What a GPU does not report, or a library of another release does not know, is nil.
// Utilization is the share of time in which any kernel ran, which says nothing about how
// much of the GPU it used.
//
// The binding runs in tests against a C library with NVML's prototypes (testdata). It has
// not yet run on hardware.
package nvml
