// Package agent assembles the parts of a node, dynamod, and starts and stops them in
// order.
//
// Start with [Agent.Run]. It brings a node up, makes its workers follow the cluster's
// assignments, and takes it down again. supervisor.go runs the workers.
//
// Run owns everything: embedded servers, connections, the node's lease, the frontend, the
// controller and the workers. It returns when all of them have ended.
//
// The controller decides placement; frontend and workers handle requests.
package agent
