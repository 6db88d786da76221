// Package sharedmem allocates memory that other processes can map: a memfd on
// Linux.
//
// Start with [New]. It knows nothing of who shares the memory with whom: backends
// put their KV pools into it, and package nixl/shm hands its descriptor to peers.
//
// A [Memory] belongs to its maker, who closes it when nobody in this process
// touches it any more. Processes that have mapped it keep its pages until they
// unmap them, but they do not see what comes after Close, nor does this process see
// what they write.
//
// Where memory cannot be shared (other systems, or a sandbox that forbids memfds)
// the memory is private and [Memory.SharedFD] says so.
package sharedmem
