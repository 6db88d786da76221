// Package driver binds the CUDA driver, libcuda, which is loaded at run time: no cgo, no
// CUDA toolkit, nothing to link. It is what the rest of internal/cuda computes through.
//
// Start with [Open], which returns the driver of this machine, or one of the errors that
// say why there is none and what to do: [ErrNoLibrary], [ErrNoDevice], [ErrTooOld],
// [ErrUnusable]. Code above takes a [Driver], so that tests pass that of package fake;
// package drivertest holds the suite that both satisfy.
//
// Methods carry the names of CUDA's functions, take a device first, and may be called by
// several goroutines at the same time. Each call makes the primary context of its device
// current on the thread that it runs on; callers need not know of contexts or threads.
// Addresses, streams, events, modules, functions and graphs are CUDA's handles as
// numbers; 0 is never valid, and the legacy default stream cannot be named.
//
// A fault inside a kernel loses the context: every later call on the device fails, and
// only a new process can use it again; see [IsContextLost].
//
// The binding runs in tests against a C library with CUDA's prototypes (testdata), and
// has been loaded with NVIDIA's own library on a machine without a device. It has not
// yet run on hardware.
package driver
