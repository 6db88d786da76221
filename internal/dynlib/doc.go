// Package dynlib loads C libraries at run time, without cgo: drivers and fabrics
// that a machine may or may not have.
//
// Start with [Open]. It is the only place that imports the loader, so that one build
// tag, nodl, leaves loading out of a program: such a program is fully static, and Open
// returns [ErrCompiledOut]. Systems that are not supported return the same.
//
// A [Library] stays loaded until the process ends. Its functions may be called at the
// same time as far as the C library allows. The package knows no library: who calls
// knows names, types and who owns the memory.
package dynlib
