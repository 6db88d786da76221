// Package bench measures this build on this machine and reports the results: the engine
// against the memory's speed, the path of a request against the bare engine, transfers
// against memcpy, messages against a plain socket.
//
// Start with [Run], which runs sections and returns a [Report], and with
// [Report.Markdown] and [Report.JSON]. rounds.go holds the rule of all measurements: the
// cases of a table take turns, round after round, so that a ratio compares results under
// the same conditions.
//
// The sections cpu, accuracy and scale are apart: they make their own reports and run only
// when named. cpu.go compares the CPU backend in real shapes with the limits of the
// processor, and its shares of them with published ones (cpu_peers.go). accuracy.go compares
// logits. fleet.go measures fleets of several sizes, each in processes of its own, and fits
// laws to the figures (fit.go).
//
// Run starts servers, engines and whole nodes inside the process, and child processes for
// measurements that need one ([Child]). When it returns, all of them have stopped and
// their files are removed. Only the synthetic model of the engine section stays in the
// state directory for the next run. Run counts the processor time of the whole process,
// so it must not run twice at once in one process.
//
// The package does not assert speeds and does not generate load for other clusters.
package bench
