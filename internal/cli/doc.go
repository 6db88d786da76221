// Package cli is dynctl, the operator's command line: one file for each verb.
//
// Start with [Main], which runs one command line and returns its exit code, and
// [Env], everything the process gives to it. Each verb has a function that makes its
// command, and options: what flags and arguments say, and the [Session] in which it
// runs. A session is one run of one command: it has the settings, the [Printer] and the
// connections to the cluster. [App] is what all commands share.
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
