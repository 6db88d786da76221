// Package bench measures this build on this machine and reports what it found: the
// engine against the memory's speed, the path of a request against the bare
// engine, transfers against memcpy, messages against a plain socket.
//
// Start with [Run], which runs sections and returns a [Report], and with
// [Report.Markdown] and [Report.JSON]. rounds.go holds the rule by which everything
// is measured: the cases of a table take turns, round after round, so that a ratio
// compares what ran under the same conditions.
//
// The sections cpu and accuracy are apart: they make reports of their own and are no
// part of everything. cpu.go compares the CPU backend in real shapes with the limits of
// the processor, and its shares of them with those that others have published
// (cpu_peers.go); accuracy.go compares logits.
//
// Run starts servers, engines and whole nodes inside the process, and processes for
// what needs a new or a foreign one ([Child]). It has stopped them all, and removed
// their files, when it returns; only the synthetic model of the engine section stays in
// the state directory for the next run. It must not run twice at once in
// one process: it counts the processor time of all of it.
//
// The package asserts nothing about speed and is no load generator for clusters
// elsewhere.
package bench
