// Package cluster defines the vocabulary of a dynctl cluster: roles, states, instances,
// model cards, topologies, assignments, statuses, events and snapshots. It also makes the
// etcd keys that store them.
//
// Start with [Topology] (the desired state), [Assignment] (one worker's share of it),
// [WorkerStatus] (the observed state of a worker) and [Snapshot] (the whole cluster at
// one moment).
//
// Everything here is a plain value: nothing owns a goroutine, a file or a connection, and
// nothing is safe to change from two goroutines at once. The package imports only the
// standard library, so that any other package may use it. Values are stored in etcd as
// JSON; 64-bit identifiers are JSON integers and must be decoded as integers, never
// through float64.
package cluster
