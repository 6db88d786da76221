// Package local is the transport between agents of one process: it copies memory
// to memory.
//
// Start with [Registry]: the assembler makes one per process and gives each agent a
// [Registry.Transport]. A transport owns one goroutine per running transfer until
// Close; everything is safe to call at the same time. All transports of a registry
// share a number of copy slots, so that transfers do not take every core from
// computing.
//
// Memory of devices that is a [nixl.DeviceCopier] is copied by its device, without host
// memory in between.
//
// It does not reach other processes, and it does not avoid the copy: two workers
// that share one block pool need no transfer at all.
package local
