// Package cli is dynctl, the operator's command line: one file for each verb.
//
// Start with [Main], which runs one command line and returns its exit code, and
// [Env], everything the process gives to it. Inside, a factory holds what commands
// share, as functions, so that help dials nothing; each verb is a struct with its
// flags and a run method; an invocation is one run of one verb, with its settings
// and streams.
//
// Answers go to standard output, progress, notes and errors to standard error. Main
// owns every goroutine that a command starts and has ended them when it returns,
// except those that wait for processes which outlive it, or for a terminal when a
// signal ends a conversation. It may be called several
// times in one process, also at the same time.
//
// The package never links engines, agents or servers: "up" starts dynamod
// processes. It draws no dashboard (tui does) and keeps no state but what the
// cluster and its state directory hold.
//
// docs/cli.md, docs/keys.md and the pages in docs/man are made from the commands.
package cli

//go:generate go test -run ^TestManuals$ . -update
