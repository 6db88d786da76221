// Package fenced is what transports between processes of one machine have in common
// when the initiator copies by itself: sessions over a unix socket, grants by
// ticket, and the fences that keep a late copy out.
//
// Start with [Pool], one per process, and [Method], which says how memory of another
// process is touched; packages nixl/shm and nixl/cma have one each. An agent listens
// on an abstract unix socket and lets in processes of its own user that know its
// secret. The socket carries control messages: the target checks ticket and bounds,
// hands over what the initiator needs to touch the memory, and answers; the bytes
// themselves are copied by the initiator without the target's help.
//
// A target cannot stop such a copy, so the initiator asks before every piece of at
// most 1 MiB: it enters a fence, a word in memory that both share, and the target
// shuts that fence to revoke. A grant is released when the fence is shut and no access
// is inside, or when the initiator's process is gone. DESIGN.md has the states and
// the argument.
//
// A transport owns its goroutines, sockets and regions until Close. It needs Linux
// with memfd and pidfd. It does not protect from a process of the same user that
// ignores the fence: such a process could use ptrace as well.
package fenced
