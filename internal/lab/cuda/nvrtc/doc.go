// Package nvrtc binds NVIDIA's run-time compiler, libnvrtc, which makes PTX of CUDA C++.
// It needs neither a device nor a driver. Programs do without it: their kernels are
// compiled before. It is for whoever works on kernels, and for the command that makes
// what is committed.
//
// Start with [Open]. A [Compiler] may be used by several goroutines at the same time.
//
// The library has no headers of its own (before 13.3): sources must do without.
package nvrtc
