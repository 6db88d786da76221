// Package shm is the transport between processes of one machine: the initiator
// maps the memory of its peer and copies straight into it, or out of it.
//
// Start with [New]. Sessions, tickets and fences are those of package nixl/fenced.
// Only memory that is a [nixl.SharedMemory] can be reached, and only on Linux.
package shm
