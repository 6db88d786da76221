// Package emulator executes PTX on the host's processor, for tests on machines without a
// device. It also finds errors that a device would not report.
//
// Start with [Load] and [Kernel.Run]. A warp executes an instruction for all its lanes that
// stand at it; lanes that took another branch meet again where all ways lead to. Warps of
// a block, and parts of a warp, go on in an order that a seed chooses, and blocks of a grid
// run on all processors. Asynchronous copies happen as late as they may: at the wait.
//
// What compute-sanitizer finds on a device is an error here, with the line of the PTX, the
// block and the thread, for each line once:
//
//   - memory: an access beyond allocations, one that is not aligned, one in another space
//     than the instruction says;
//   - race: two threads of a block use the same bytes of shared memory, one of them writes,
//     and nothing puts one before the other;
//   - sync: a barrier that not all threads reach, or an instruction of the whole warp that
//     some lanes miss;
//   - uninitialized: a register, shared memory, or device memory that was read before it was
//     written.
//
// Arithmetic is that of the PTX ISA, rounded as it says. Where that leaves an error to
// the hardware, the emulator rounds the exact value to nearest: ex2, lg2, sin, cos, tanh,
// rcp, rsqrt, sqrt and div with .approx, of which a device may be 2^-21 and more off. A
// product of matrices is exact but for one rounding to float32 at its end, where tensor
// cores cut off at the 24th bit or so of the largest term.
//
// What compute capability 9.0 has of its own, TMA, mbarriers and wgmma, is late, too: copies
// come in any order while somebody waits for them, and products are computed at their wait.
// It also reports what a device leaves undefined: sums that are used before the wait or
// changed without wgmma.fence, writes of threads that no fence.proxy.async shows to these
// units, bytes that were not announced, warps of a group that begin other products.
//
// It does not show weak ordering of memory, and races in the memory of the device: of two
// blocks that write the same bytes without atomics, one wins.
package emulator
