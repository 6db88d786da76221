// Package router chooses workers. For each request, a [Policy] compares the candidates
// and returns a [Decision]: the chosen worker and the terms of the choice, so that every
// choice can be explained.
//
// Start with [Policy] and [Decision]. [Load] counts requests in flight for the policies
// that need it. [DecidePrefill] chooses between local and remote prefill. Policies are
// safe for concurrent use.
//
// Candidates, load and time are passed in: the package uses no store, network or engine.
package router
