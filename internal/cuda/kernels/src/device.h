// What kernels use of the machine. All PTX is in the one-line functions of this file,
// so that the same sources compile for the host, where ../shim stands for the device.
#pragma once

typedef unsigned short bf16;

#ifdef DYNCTL_SHIM
#include "shim.h"
#else
#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// Shared memory whose size is given at the launch.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

// Two floats rounded to bf16, lo in the low half.
DEVICE unsigned pack2(float lo, float hi) { unsigned r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
// Two products of bf16, rounded.
DEVICE unsigned multiply2(unsigned a, unsigned b) { unsigned r; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u)); return r; }
// The same with a sum, rounded once.
DEVICE unsigned multiply_add2(unsigned a, unsigned b, unsigned c) { unsigned r; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
// The value of a float16.
DEVICE float widen_half(unsigned short v) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v)); return r; }
// 2^x, about 2 units in the last place off; 2^-inf is 0.
DEVICE float exp2_fast(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
// Memory that is read once and not written by the kernel.
DEVICE uint4 load_once(const uint4 *p) { uint4 r; asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p)); return r; }
DEVICE uint2 load_once(const uint2 *p) { uint2 r; asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p)); return r; }
DEVICE unsigned load_once(const unsigned *p) { unsigned r; asm("ld.global.nc.u32 %0, [%1];" : "=r"(r) : "l"(p)); return r; }
// The nearest whole number, halves to even.
DEVICE int round_even(float v) { int r; asm("cvt.rni.s32.f32 %0, %1;" : "=r"(r) : "f"(v)); return r; }
// The address of shared memory for the functions below.
DEVICE unsigned shared_address(const void *p) { unsigned r; asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p)); return r; }
// Copies 16 bytes to shared memory, or zeros when bytes is 0; they are there after
// copy_wait and a barrier.
DEVICE void copy_async(unsigned to, const void *from, int bytes) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory"); }
// As copy_async for 4 bytes, of which bytes, 0, 2 or 4, are copied.
DEVICE void copy_async4(unsigned to, const void *from, int bytes) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory"); }
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most pending groups of copies of this thread are under way.
template <int pending> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }
// Four 8x8 matrices of 16-bit values; each lane gives the address of one row.
DEVICE uint4 load_matrix(unsigned row) { uint4 r; asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(row) : "memory"); return r; }
// c += a b for a of 16x16 and b of 16x8 bf16, c of 16x8 floats. What is not volatile, the
// compiler may put on both ways of a branch that lanes take differently, and all lanes of a
// warp must come together here.
DEVICE void mma(float (&c)[4], const uint4 &a, unsigned b0, unsigned b1) { asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1)); }
#endif

// The two values of a word.
DEVICE float low(unsigned w) { return __uint_as_float(w << 16); }
DEVICE float high(unsigned w) { return __uint_as_float(w & 0xffff0000u); }

DEVICE float widen(bf16 v) { return __uint_as_float((unsigned)v << 16); }
DEVICE bf16 narrow(float v) { return (bf16)pack2(v, 0.f); }

// A number that orders as the float does. Both zeros have the same.
DEVICE unsigned order(float v) {
	const unsigned u = __float_as_uint(v + 0.f);
	return u >> 31 ? ~u : u | 0x80000000u;
}

// Eight values of 16 bytes.
struct Eight {
	float v[8];
};

DEVICE Eight widen8(const uint4 &w) {
	return {low(w.x), high(w.x), low(w.y), high(w.y), low(w.z), high(w.z), low(w.w), high(w.w)};
}

DEVICE uint4 narrow8(const Eight &x) {
	return make_uint4(pack2(x.v[0], x.v[1]), pack2(x.v[2], x.v[3]), pack2(x.v[4], x.v[5]), pack2(x.v[6], x.v[7]));
}

const unsigned ALL_LANES = 0xffffffffu;

// The sum over a warp, in every lane; the order is always the same.
template <class T> DEVICE T warp_sum(T v) {
	for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(ALL_LANES, v, lane);
	return v;
}

DEVICE unsigned warp_max(unsigned v) {
	for (int lane = 16; lane > 0; lane /= 2) v = max(v, __shfl_xor_sync(ALL_LANES, v, lane));
	return v;
}

// The low bytes of both halves, int8, as bf16: the lower bits with 128, less 128 or, if the
// sign is set, 256. Other bits do not matter.
DEVICE unsigned widen_bytes(unsigned w) { return multiply_add2(w & 0x007f007fu | 0x43004300u, 0x3f803f80u, w & 0x00800080u | 0xc300c300u); }

// The sum over a block of at most 1024 threads, in every thread; scratch has a value for
// each warp.
template <class T> DEVICE T block_sum(T v, T *scratch) {
	v = warp_sum(v);
	if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
	__syncthreads();
	T sum = 0;
	for (int w = 0; w < blockDim.x / 32; w++) sum += scratch[w];
	__syncthreads();
	return sum;
}
