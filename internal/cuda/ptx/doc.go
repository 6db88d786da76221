// Package ptx reads NVIDIA's PTX, the assembly that kernels are shipped in, as far as the
// kernels of this module use it. What it does not understand is an error that names the
// line: nothing is skipped.
//
// Start with [Parse]. Modules are not changed afterwards and may be shared.
package ptx
