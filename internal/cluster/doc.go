// Package cluster holds the nouns of a dynctl cluster: roles, states, instances,
// model cards, topologies, assignments, statuses, events and the Snapshot that
// operators look at, together with the etcd keys they live under.
//
// Start with [Topology] (what was asked for), [Assignment] (who does it),
// [WorkerStatus] (what is observed) and [Snapshot] (all of it at one moment).
//
// Everything here is a plain value: nothing owns a goroutine, a file or a
// connection, and nothing is safe to change from two goroutines at once.
// The package imports only the standard library, so that any other package may
// use its words. Values are stored in etcd as JSON; 64-bit identifiers are JSON
// integers and must be decoded as integers, never through float64.
package cluster
