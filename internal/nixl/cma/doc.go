// Package cma is the transport between processes of one Linux machine for memory
// that cannot be mapped by others, because its owner did not allocate it to be
// shared: the initiator asks the kernel to copy between the two processes
// (process_vm_readv and process_vm_writev).
//
// Start with [New]. Sessions, tickets and fences are those of package nixl/fenced: a
// system call is made inside the fence only, so that a revoked ticket keeps the
// initiator out as it does where memory is mapped.
//
// The kernel allows such a copy to whom it would allow to attach a debugger: the same
// user, the same namespace of processes, and, where Yama is strict (ptrace_scope 1),
// an ancestor. Whether it does is tried when a peer is loaded, by reading a secret
// that the peer's metadata names. Peers learn addresses of memory in each other's
// processes, and nobody does that could not read them in /proc.
package cma
