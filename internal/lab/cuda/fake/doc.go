// Package fake pretends to be a CUDA driver, for tests on machines without a device. Its
// memory is the host's, and kernels are Go functions that stand for those of the modules,
// or the PTX of these, executed by package emulator.
//
// Start with [New]. The fake is lazy and strict. Work runs only when somebody waits for
// it, or for work behind it, so that who does not wait finds old bytes. Each piece of
// work knows by vector clocks what comes before it: two that touch the same bytes, one of
// them writing, without an order between them are a fault, whatever order they ran in.
// Faults are also: use of memory that was freed, freeing what pending work names, host
// memory that changes before it was copied, calls that a capture forbids, and kernels that may
// overlap others and do not begin by waiting for them. They
// are returned by the call, or by the one that waits, and once more by [Driver.Close]
// together with everything that is left. An access outside of memory loses the context,
// as on a device.
//
// Time is virtual: each work takes what its kernel says, or a microsecond, and begins
// when what it waits for has ended. It says nothing of any device.
package fake
