// Package amxtest runs tests of AMX kernels on machines without AMX: it emulates the
// instructions of tiles for a test process.
//
// Start with [Run], which executes tests of the calling test binary once more, in a
// process that it traces. Where that process meets an instruction of AMX the
// processor raises SIGILL; the tracer decodes the instruction, does what Intel's
// manual says on tiles that it keeps for each thread, and lets the process go on
// behind it. All other signals are passed on. In that process [Emulated] is true, and
// tests call kernel.AssumeAMX.
//
// Run owns the process and the thread that traces it, and returns when both are done.
//
// What it cannot show is that a processor does what its manual says, and how fast.
package amxtest
