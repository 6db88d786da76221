// The functions of src/sm90a.h on the host: copies of boxes, mbarriers and products of warp
// groups, which go on beside the threads. As shim.h it is out to break kernels:
//
// - a copy makes its target poison at once, and lands at some time before the phase of its
//   barrier ends;
// - sums are poison from the first product until all have been waited for, and operands
//   are read as late as that;
// - who reads or overwrites a stage must know, by barriers and not by luck, that it has
//   landed, or that its readers have ended. Vector clocks of the warps tell.
//
// What shared memory, descriptors and fragments mean is written here a second time, from
// the PTX ISA, and not taken from the kernels.
#pragma once
#include "shim.h"

#define KERNEL_ALONE(threads) static void
#define MAP const TensorMap

namespace shim {

void copy_box(unsigned to, const void *map, int column, int row, unsigned barrier);
void check_map(const void *map);
void multiply(float *d, int columns, unsigned long long a, unsigned long long b);
void wait_products(int pending);
void set_registers(int n, bool more);

} // namespace shim

void barrier_init(unsigned barrier, int arrivals);
void barrier_publish();
void barrier_arrive(unsigned barrier);
void barrier_expect(unsigned barrier, int bytes);
void barrier_wait(unsigned barrier, unsigned parity);
void wgmma_fence();
void wgmma_commit();

static inline void copy_box(unsigned to, const TensorMap &map, int column, int row, unsigned barrier) { shim::copy_box(to, &map, column, row, barrier); }
static inline void prefetch_map(const TensorMap &map) { shim::check_map(&map); }
template <int n> void give_registers() { shim::set_registers(n, false); }
template <int n> void take_registers() { shim::set_registers(n, true); }
template <int pending> void wgmma_wait() { shim::wait_products(pending); }
template <int n> void wgmma(float (&d)[n], unsigned long long a, unsigned long long b) { shim::multiply(d, 2 * n, a, b); }
template <int n> void wgmma_finish(float (&d)[n]) { shim::wait_products(0); }
