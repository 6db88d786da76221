// Package session is one run of one command of dynctl: its settings, its printer and the
// connections to the cluster that it opens.
//
// [Env] is what the process gives; a [Session] is made by package command, which also closes
// it. Sessions are for one goroutine.
package session
