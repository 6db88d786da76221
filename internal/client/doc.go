// Package client is what dynctl knows of a cluster: it finds the stores, takes
// snapshots, watches for changes and carries out actions.
//
// Start with [Source], which the dashboard reads, and Cluster, the live one.
package client
