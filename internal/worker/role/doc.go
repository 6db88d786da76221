// Package role is what workers and their roles agree on.
//
// A [Role] is what a worker does for requests during one [Term]: prefill, decode. The
// worker gives it a Term, has it register its endpoints, runs the [Step]s of its drain,
// and ends it. A role knows the Term and nothing else of the worker; the worker knows the
// Role and nothing else of what it does. So another role is a package with a [Kind], and a
// line in the table of the worker.
//
// Start with [Role].
package role
