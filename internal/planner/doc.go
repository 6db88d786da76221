// Package planner decides how many prefill and decode workers a cluster should have. It is the pure
// core of the autoscaler: observations in, decisions with their reasons out.
//
// Start with [Planner]: [New] takes a [Config], a [Performance] (how fast one worker is) and
// an [Evaluator] (how a number of workers would do under a load); [Planner.Tick] takes an [Observation]
// of the last seconds and returns a [Decision]. [Queueing] is the evaluator that comes with the package.
//
// A Planner keeps a bounded memory of loads, lengths and durations of actions. It starts no goroutine,
// reads no clock and does no I/O: the same calls give the same decisions. It is not safe for concurrent use.
//
// The planner carries nothing out and knows no node, device or worker process. DESIGN.md has
// the decisions behind it and what differs from NVIDIA Dynamo's planner.
package planner
