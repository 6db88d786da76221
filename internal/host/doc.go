// Package host reads what the machine has for workers: processors and their nodes,
// memory and its limits, huge pages, open files, disk space, features of the CPU, GPUs and
// RDMA devices.
// It also binds threads to processors.
//
// Start with [Machine], whose root tests replace. Everything is read when it is asked
// for; nothing is kept and no goroutine started. What a system does not tell is zero,
// never a guess: only Linux tells most of it.
//
// The package judges nothing: what is enough is said where it is shown.
package host
