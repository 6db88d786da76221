// Package client connects dynctl to a cluster. It finds the stores, takes snapshots,
// watches for changes, declares topologies and gives orders to workers and nodes.
//
// Start with [Cluster], the connection, and [Source], which the dashboard reads.
package client
