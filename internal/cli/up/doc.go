// Package up starts a cluster on this machine, or changes a running one: dynctl up.
//
// The processes that it starts outlive it.
package up
