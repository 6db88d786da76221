// Package host reads the resources of this machine: processors and NUMA nodes, memory and
// its limits, huge pages, open files, disk space, CPU features, GPUs and RDMA devices. It
// also binds threads to processors.
//
// Start with [Machine], whose root tests replace. Every call reads anew; the package
// keeps nothing and starts no goroutine. Values that the system does not report are zero,
// never a guess. Most of them are reported only by Linux.
//
// The package does not judge whether the resources suffice; the callers do.
package host
