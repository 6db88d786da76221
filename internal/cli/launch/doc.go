// Package launch starts and stops dynamod processes on this machine.
//
// Start with [Start], which brings one process up in the background, [List], which
// finds those that run, and [Stop], which ends them in order.
//
// A started [Process] owns one goroutine that ends with the process; the process
// itself outlives its starter. What identifies a running dynamod is the lock of its
// node directory, which ends with it however it ends: a process id alone is never
// trusted, and none is signaled that did not hold its lock.
//
// The package knows nothing of workers and stores: who drains what, and when a
// cluster is ready, is decided by its callers.
package launch
