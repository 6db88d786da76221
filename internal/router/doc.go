// Package router chooses workers: for each request a [Policy] looks at the
// candidates and returns a [Decision] that says which one was taken and what was
// weighed, so that every choice can be explained.
//
// Start with [Policy] and [Decision]; [Load] counts requests in flight for the
// policies that need it; [DecidePrefill] is the choice between local and remote
// prefill. Policies are safe for concurrent use.
//
// The package is pure: candidates, load and time are passed in. It talks to no
// store, network or engine.
package router
