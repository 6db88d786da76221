// What kernels use of compute capability 9.0 and of no other: TMA, mbarriers and wgmma. As
// in device.h all PTX is in one-line functions, for which ../shim/async.h stands on the
// host. Sections are those of the PTX ISA 8.0.
#pragma once
#include "device.h"

// A CUtensorMap ("Tensor-map"): 128 bytes, aligned to 64, in the kernel's parameters.
struct alignas(64) TensorMap {
	unsigned long long opaque[16];
};

#ifdef DYNCTL_SHIM
#include "async.h"
#else
// One block for each multiprocessor: registers move between warp groups by setmaxnreg only
// where the number of them at the start is known.
#define KERNEL_ALONE(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define MAP const __grid_constant__ TensorMap

// "mbarrier": a phase ends when so many arrivals and all announced bytes have come. Phases
// count from 0; the one before the first counts as ended.
DEVICE void barrier_init(unsigned barrier, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// Barriers that this thread has initialized are seen by copies, and after __syncthreads by
// all threads.
DEVICE void barrier_publish() { asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory"); }
DEVICE void barrier_arrive(unsigned barrier) { asm volatile("{ .reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [%0]; }" ::"r"(barrier) : "memory"); }
// Arrives, and announces bytes of copies: those of whole boxes, also where a box is partly
// outside of its matrix.
DEVICE void barrier_expect(unsigned barrier, int bytes) { asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1; }" ::"r"(barrier), "r"(bytes) : "memory"); }
// Whether the phase of that parity has ended; it may wait some time for it.
DEVICE bool barrier_passed(unsigned barrier, unsigned parity) { unsigned r; asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"(barrier), "r"(parity) : "memory"); return r; }
DEVICE void barrier_wait(unsigned barrier, unsigned parity) { while (!barrier_passed(barrier, parity)); }

// "cp.async.bulk.tensor": copies the box whose first value is in that column and row, and
// tells the barrier of its bytes. Boxes are swizzled by 128 bytes (driver.TensorMap), and
// lie at multiples of 1024 bytes, so that the pattern begins with them.
DEVICE void copy_box(unsigned to, const TensorMap &map, int column, int row, unsigned barrier) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(barrier) : "memory"); }
DEVICE void prefetch_map(const TensorMap &map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

// "setmaxnreg": all warps of a warp group give registers to others, or take them.
template <int n> DEVICE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }
template <int n> DEVICE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }

// "wgmma.fence": before the first product, and again after other instructions have used
// the sums.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most pending groups of products are under way.
template <int pending> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }

#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define NAMES_2(t) "%" t "0, %" t "1"
#define NAMES_4(t) NAMES_2(t) ", %" t "2, %" t "3"
#define NAMES_8(t) NAMES_4(t) ", %" t "4, %" t "5, %" t "6, %" t "7"
#define NAMES_10(t) NAMES_8(t) ", %" t "8, %" t "9"
#define NAMES_30 NAMES_10("") ", " NAMES_10("1") ", " NAMES_10("2")
#define NAMES_60 NAMES_30 ", " NAMES_10("3") ", " NAMES_10("4") ", " NAMES_10("5")
#define NAMES_120 NAMES_60 ", " NAMES_10("6") ", " NAMES_10("7") ", " NAMES_10("8") ", " NAMES_10("9") ", " NAMES_10("10") ", " NAMES_10("11")
#define WGMMA(shape, sums, a, b) "wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" sums "}, " a ", " b ", 1, 1, 1, 0, 0;"

// "wgmma.mma_async": d += a b^T for a of 64 and b of 64, 128 or 256
// rows of 16 values, where descriptors say. Thread t of the warp group has in d[4 j + 2 h + i] the sum of
// row 16 (t / 32) + 8 h + t % 32 / 4 of a with row 8 j + 2 (t % 4) + i of b ("Register
// Fragments for wgmma.mma_async.m64nNk16", matrix D).
DEVICE void wgmma(float (&d)[32], unsigned long long a, unsigned long long b) { asm volatile(WGMMA("m64n64k16", NAMES_30 ", " NAMES_2("3"), "%32", "%33") : SUMS_32(0) : "l"(a), "l"(b)); }
DEVICE void wgmma(float (&d)[64], unsigned long long a, unsigned long long b) { asm volatile(WGMMA("m64n128k16", NAMES_60 ", " NAMES_4("6"), "%64", "%65") : SUMS_32(0), SUMS_32(32) : "l"(a), "l"(b)); }
DEVICE void wgmma(float (&d)[128], unsigned long long a, unsigned long long b) { asm volatile(WGMMA("m64n256k16", NAMES_120 ", " NAMES_8("12"), "%128", "%129") : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96) : "l"(a), "l"(b)); }
// Waits for all products; the compiler must not read the sums before.
DEVICE void wgmma_finish(float (&d)[32]) { asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_32(0)::"memory"); }
DEVICE void wgmma_finish(float (&d)[64]) { asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_32(0), SUMS_32(32)::"memory"); }
DEVICE void wgmma_finish(float (&d)[128]) { asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96)::"memory"); }
#endif

// "Matrix Descriptor Format": bits 0 to 13 are the address, 16 to 29 the leading byte
// offset, which is 1 where rows of 128 bytes are swizzled, 32 to 45 the stride byte offset from
// eight rows to the next eight, all in units of 16 bytes; 49 to 51 the base offset, 0 for a
// pattern that begins at a multiple of 1024 bytes; 62 and 63 are 1 for the 128-byte swizzle.
// These are rows of 64 values, as copy_box leaves them. The next 16 values of the rows are at
// descriptor + 2.
DEVICE unsigned long long descriptor(unsigned address) {
	return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}
