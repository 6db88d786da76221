// Package controller turns the desired topology of a cluster into assignments of
// workers to nodes and devices.
//
// Start with [Plan], a pure function from what is known to the changes that are
// due, and [Controller], which watches the store, runs Plan whenever something
// changes and writes the outcome by compare-and-swap.
//
// Every dynamod runs a Controller; an election makes one of them lead. Run owns
// all its goroutines. The package starts no workers: each node's agent converges
// on the assignments that name it.
package controller
