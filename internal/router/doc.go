// Package router chooses workers. For each request, a [Policy] compares the candidates
// and returns a [Decision]: the chosen worker and the terms of the choice, so that every
// choice can be explained and replayed.
//
// A decision is a function of the [Request] and the [View]: a policy keeps no state, reads
// no clock and draws no random numbers. What changes between decisions has one owner,
// [Load]: it counts what is in flight, fills it into the views and books each choice.
// [DecidePrefill] chooses between local and remote prefill.
//
// The package uses no store, network or engine.
package router
