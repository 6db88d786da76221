// Package controller turns the desired topology of a cluster into assignments of workers
// to nodes and devices.
//
// Start with [Plan], a pure function from the observed state to the changes that are due.
// [Controller] watches the store, runs Plan whenever something changes and writes the
// changes by compare-and-swap.
//
// A serving cluster changes in three ways. A role flip (flip.go) gives a running worker
// another role. A replacement (replace.go) starts a successor first; once that serves,
// the old worker drains and leaves. Replacements serve new models, drained nodes, nodes
// that return (balance.go), and operators' orders. A change in place restarts a worker on
// its device, for restarts and where a successor has no room.
//
// Every dynamod runs a Controller; an election makes one of them lead. Run owns all its
// goroutines. The package starts no workers: each node's agent carries out the
// assignments that name it.
package controller
