// Package exit has the errors of dynctl as people read them, and the exit codes that follow
// from them.
//
// A command returns a [Failure] with what it wanted, why that failed and what to run next; a
// [UsageError] about its command line; a [Stopped] after ctrl-c; or a [Silent] when all was
// said. [Write] tells an error, [CodeOf] gives its code.
package exit
