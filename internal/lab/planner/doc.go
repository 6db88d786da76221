// Package planner tries autoscalers on a cluster in virtual time: ours, those of two
// generations of NVIDIA Dynamo, and one that knows the future.
//
// Start with [Run], which plays a [Load] on a cluster of workers under a [Policy] and returns
// a [Result]: requests that missed their targets, and device-hours. The cluster is small: prefill
// workers with one queue, decode workers that step, starts, flips and drains that take time.
//
// Everything is deterministic. The package knows no process, network or real engine.
package planner
