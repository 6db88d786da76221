// Package lt multiplies matrices with NVIDIA's cuBLASLt, where it is installed: the
// measuring stick of the kernels of package kernels, which take the same operations. No
// program needs it.
//
// Start with [Open] and [Library.NewHandle]. Calls need the context of the device to be
// current on their thread, where package driver leaves it after any call: make them in
// device.Device.Run, behind one.
//
// The binding runs in tests against a C library with cuBLASLt's prototypes (testdata),
// which multiplies on the host. It has not yet run on hardware.
package lt
