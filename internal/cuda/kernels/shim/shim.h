// Stands for a CUDA device on the host, for tests: every thread of a block is a fiber, and
// blocks run one after the other. It is out to break kernels that rely on luck:
//
// - fibers go on in a random order, which a seed chooses, from one barrier or warp-wide
//   instruction to the next;
// - shared memory is poison when a block starts;
// - asynchronous copies make their target poison at once, and happen only at the wait.
//
// It cannot show what only hardware does: weak ordering of memory, and lanes of a warp
// that run together without a barrier.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define DEVICE static inline
#define KERNEL(threads) static void
#define __device__
#define __forceinline__
// One section holds all static shared memory, so that it can be poisoned. It must not
// stand in templates.
#define __shared__ static __attribute__((section("shim_shared"), aligned(16)))
#define DYNAMIC_SHARED(name) unsigned char *name = shim::dynamic_shared

struct uint4 {
	unsigned x, y, z, w;
};
struct uint2 {
	unsigned x, y;
};
struct float4 {
	float x, y, z, w;
};
struct float2 {
	float x, y;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

struct Index {
	int x, y, z;
};
extern Index threadIdx, blockIdx, blockDim, gridDim; // of the fiber that runs

namespace shim {

extern unsigned char *dynamic_shared;

void block_barrier();

// Every lane of the warp gives its operands, and the last to come does the work for all.
// work gets the operands of the 32 lanes, with null for those that are not in the mask.
void collective(unsigned mask, void *operands, void (*work)(void **lanes), const char *what);

void copy_later(void *to, const void *from, int bytes, int room);
void copy_group();
void copy_finish(int pending);

int lane();
[[noreturn]] void fail(const char *what);

template <class T> struct Shuffle {
	T value, result;
	int from;
};

template <class T> T shuffle(unsigned mask, T value, int from) {
	Shuffle<T> s = {value, value, from};
	collective(mask, &s, [](void **lanes) {
		for (int i = 0; i < 32; i++) {
			if (!lanes[i]) continue;
			Shuffle<T> *to = (Shuffle<T> *)lanes[i], *src = (Shuffle<T> *)lanes[to->from];
			if (!src) fail("a shuffle reads a lane that does not take part");
			to->result = src->value;
		}
	}, "shuffle");
	return s.result;
}

} // namespace shim

static inline void __syncthreads() { shim::block_barrier(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
	shim::collective(mask, nullptr, [](void **) {}, "__syncwarp");
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int lanes) { return shim::shuffle(mask, v, shim::lane() ^ lanes); }
template <class T> T __shfl_sync(unsigned mask, T v, int from) { return shim::shuffle(mask, v, from & 31); }
template <class T> T __shfl_up_sync(unsigned mask, T v, int by) { return shim::shuffle(mask, v, shim::lane() < by ? shim::lane() : shim::lane() - by); }

struct Vote {
	bool is;
	unsigned all;
};

static inline unsigned __ballot_sync(unsigned mask, bool is) {
	Vote v = {is, 0};
	shim::collective(mask, &v, [](void **lanes) {
		unsigned all = 0;
		for (int i = 0; i < 32; i++) all |= (unsigned)(lanes[i] && ((Vote *)lanes[i])->is) << i;
		for (int i = 0; i < 32; i++)
			if (lanes[i]) ((Vote *)lanes[i])->all = all;
	}, "__ballot_sync");
	return v.all;
}

// Blocks run one after the other, and fibers give way at barriers only.
template <class T> T atomicAdd(T *p, T v) {
	T old = *p;
	*p += v;
	return old;
}

static inline float __uint_as_float(unsigned u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}
static inline unsigned __float_as_uint(float f) {
	unsigned u;
	memcpy(&u, &f, 4);
	return u;
}
// Four bytes of the eight in lo and hi, by the digits of which.
static inline unsigned __byte_perm(unsigned lo, unsigned hi, unsigned which) {
	const uint64_t both = (uint64_t)hi << 32 | lo;
	unsigned r = 0;
	for (int i = 0; i < 4; i++) r |= (unsigned)(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
	return r;
}
static inline int __popc(unsigned u) { return __builtin_popcount(u); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

// The functions of device.h that are PTX there.

static inline unsigned round_bf16(float v) {
	unsigned u = __float_as_uint(v);
	if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff; // what cvt.rn makes of NaN
	return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline unsigned pack2(float lo, float hi) { return round_bf16(lo) | round_bf16(hi) << 16; }
static inline float exp2_fast(float x) { return x < -126 ? 0 : exp2f(x); }
template <class T> T load_once(const T *p) { return *p; }
static inline int round_even(float v) { return (int)nearbyintf(v); }
static inline unsigned multiply2(unsigned a, unsigned b) {
	auto value = [](unsigned w) { return __uint_as_float(w << 16); };
	return pack2(value(a) * value(b), value(a >> 16) * value(b >> 16));
}
static inline unsigned multiply_add2(unsigned a, unsigned b, unsigned c) {
	auto value = [](unsigned w) { return __uint_as_float(w << 16); };
	return pack2(fmaf(value(a), value(b), value(c)), fmaf(value(a >> 16), value(b >> 16), value(c >> 16)));
}
static inline float widen_half(unsigned short v) {
	const int exponent = v >> 10 & 31, mantissa = v & 1023;
	const float size = exponent == 31 ? mantissa ? NAN : INFINITY : exponent ? ldexpf(1024 + mantissa, exponent - 25) : ldexpf(mantissa, -24);
	return v >> 15 ? -size : size;
}
unsigned shared_address(const void *p);
void *shared_pointer(unsigned address, int bytes);
static inline void copy_async(unsigned to, const void *from, int bytes) { shim::copy_later(shared_pointer(to, 16), from, bytes, 16); }
static inline void copy_async4(unsigned to, const void *from, int bytes) { shim::copy_later(shared_pointer(to, 4), from, bytes, 4); }
static inline void copy_commit() { shim::copy_group(); }
template <int pending> void copy_wait() { shim::copy_finish(pending); }
uint4 load_matrix(unsigned row);
void mma(float (&c)[4], const uint4 &a, unsigned b0, unsigned b1);
