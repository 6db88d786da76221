// Package shm is the transport between processes of one machine: the initiator
// maps the memory of its peer and copies straight into it, or out of it.
//
// Start with [Pool], one per process, whose Transport goes into an agent's
// Config. An agent listens on an abstract unix socket and lets in processes of its
// own user that know its secret. The socket carries control messages: the target
// checks ticket and bounds, hands over the descriptors of the memory, and answers;
// the bytes themselves are copied by the initiator without the target's help.
//
// A target cannot stop such a copy, so the initiator asks before every piece of at
// most 1 MiB: it enters a fence, a word in memory that both share, and the target
// shuts that fence to revoke. A grant is released when the fence is shut and nobody
// is inside, or when the initiator's process is gone. DESIGN.md has the states and
// the argument.
//
// A transport owns its goroutines, sockets and mappings until Close. It needs Linux
// with memfd and pidfd; only memory that is a [nixl.SharedMemory] can be reached.
// It does not protect from a process of the same user that ignores the fence: such
// a process could use ptrace as well.
package shm
