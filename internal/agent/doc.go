// Package agent is dynamod: it assembles the parts of a node and owns the order in
// which they start and stop.
//
// Start with [Agent.Run], which brings a node up, keeps it converging on what the
// cluster asks of it, and takes it down again; supervisor.go runs the workers.
//
// Run owns everything: embedded servers, connections, the node's lease, the
// frontend, the controller and the workers. It returns when all of them are gone.
//
// The package decides nothing about placement (the controller does) and knows
// nothing of requests (frontend and workers do).
package agent
