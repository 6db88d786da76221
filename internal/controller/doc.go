// Package controller turns the desired topology of a cluster into assignments of
// workers to nodes and devices.
//
// Start with [Plan], a pure function from what is known to the changes that are
// due, and [Controller], which watches the store, runs Plan whenever something
// changes and writes the outcome by compare-and-swap.
//
// What changes while the cluster serves is made of three moves. A role flip (flip.go)
// gives a running worker to another role. A successor (replace.go) starts first, and the
// worker that it follows drains and goes when it serves: new models, drained nodes, a
// node that returns (balance.go), and whoever asks for one. Where there is no room for
// one worker more, and for restarts, a worker changes in its place.
//
// Every dynamod runs a Controller; an election makes one of them lead. Run owns
// all its goroutines. The package starts no workers: each node's agent converges
// on the assignments that name it.
package controller
