// The arithmetic of attention: 16 rows of queries with 32 keys at a time, on tensor cores.
#pragma once
#include "device.h"
#include "kv.h"

// A step works on 32 tokens, two groups of sixteen. The layout of the pool lets each lane
// load 16 bytes that are operands as they are, if products take tokens and dimensions in
// an order of their own. With g = lane / 4, t = lane % 4 and j = 0..3:
//
//   scores: product j has as its column g the token key_token(g, j); as its k-pairs t and
//           t + 4 the pairs of dimensions t and t + 4 of sixteen dimensions. A lane has
//           scores of the tokens key_token(2t, j) and key_token(2t + 1, j).
//   output: product i of 64 dimensions has as its column g the dimension 8 g + i. Its k
//           are tokens in the order in which the lane has scores.
const int STEP = 32;

DEVICE int key_token(int g, int j) { return g / 4 * 16 + g % 4 * 4 + j; }

// The state of a warp for 16 rows: queries, weighted sums of OUT dimensions of values, and
// for the lane's rows g and g + 8 the largest score and the sum of weights.
template <int DIM, int OUT, class KV> struct Rows {
	// Registers hold queries of up to 128 dimensions; larger ones are read each time.
	enum { KEPT = DIM <= 128 };
	uint4 q[KEPT ? DIM / 16 : 1];
	const unsigned *lo, *hi;
	float out[OUT / 8][4];
	float top[2], norm[2];
};

const float NONE = -1e30f; // below every score; 2 to its power is 0

// What scores mean: scale includes log2(e); limit is the soft cap in units of scores times
// log2(e), or 0.
struct Scores {
	float scale, limit;
};

// Makes a score of a product, as a power of two.
DEVICE float score(const Scores &s, float product) {
	float x = product * s.scale;
	if (s.limit > 0) x = s.limit * tanhf(x / s.limit);
	return x;
}

// The operand of sixteen dimensions of the lane's rows, from memory. Keys of int8 have single
// dimensions in a word, of which four follow each other in the lanes t: pair t of a product is
// the dimensions t and t + 4, and pair t + 4 those 8 later.
template <class KV> DEVICE uint4 query(const unsigned *lo, const unsigned *hi, int k) {
	const int t = threadIdx.x % 4;
	if (!KV::INT8) {
		const int at = k * 8 + t;
		return {lo ? lo[at] : 0, hi ? hi[at] : 0, lo ? lo[at + 4] : 0, hi ? hi[at + 4] : 0};
	}
	const int at = k * 8 + t / 2, which = t % 2 ? 0x7632 : 0x5410;
	return {lo ? __byte_perm(lo[at], lo[at + 2], which) : 0, hi ? __byte_perm(hi[at], hi[at + 2], which) : 0,
	        lo ? __byte_perm(lo[at + 4], lo[at + 6], which) : 0, hi ? __byte_perm(hi[at + 4], hi[at + 6], which) : 0};
}

// The pair of dimensions of four tokens of int8, given the bytes of each.
DEVICE uint4 pair_bytes(unsigned a, unsigned b) {
	return {widen_bytes(__byte_perm(a, b, 0x0400)), widen_bytes(__byte_perm(a, b, 0x0501)), widen_bytes(__byte_perm(a, b, 0x0602)), widen_bytes(__byte_perm(a, b, 0x0703))};
}

// The first of the two dimensions of a pair of int8; the other one is four later.
DEVICE int pair_dim(int pair) { return pair / 4 * 8 + pair % 4; }

// Eight values of a token of int8.
DEVICE uint4 eight_bytes(const uint2 &w) {
	return {widen_bytes(__byte_perm(w.x, 0, 0x0100)), widen_bytes(__byte_perm(w.x, 0, 0x0302)), widen_bytes(__byte_perm(w.y, 0, 0x0100)), widen_bytes(__byte_perm(w.y, 0, 0x0302))};
}

// Puts 16 rows of queries of dim dimensions in place; load(row) is where a row's values are, or
// null.
template <int DIM, int OUT, class KV, class Load> DEVICE void begin(Rows<DIM, OUT, KV> &r, int dim, Load load) {
	const int g = threadIdx.x % 32 / 4;
	r.lo = (const unsigned *)load(g), r.hi = (const unsigned *)load(g + 8);
	if (r.KEPT)
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) r.q[k] = k * 16 < dim ? query<KV>(r.lo, r.hi, k) : uint4{0, 0, 0, 0};
#pragma unroll
	for (int i = 0; i < OUT / 8; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) r.out[i][j] = 0;
	r.top[0] = r.top[1] = NONE;
	r.norm[0] = r.norm[1] = 0;
}

DEVICE float quad_max(float v) {
	v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, 1));
	return fmaxf(v, __shfl_xor_sync(ALL_LANES, v, 2));
}

DEVICE float quad_sum(float v) {
	v += __shfl_xor_sync(ALL_LANES, v, 1);
	return v + __shfl_xor_sync(ALL_LANES, v, 2);
}

// Two products with the values of four tokens, which have two dimensions in a word.
DEVICE void pairs(float (&even)[4], float (&odd)[4], const uint4 &p, unsigned a, unsigned b, unsigned c, unsigned d) {
	mma(even, p, __byte_perm(a, b, 0x5410), __byte_perm(c, d, 0x5410));
	mma(odd, p, __byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x7632));
}

// Takes 32 tokens in. Heads have dim dimensions, at most DIM, a multiple of 16, of which the
// first out, at most OUT, of those that value gives are summed. key(pair) gives the 16 bytes of the lane's keys, four tokens of a pair
// of dimensions; value(token, chunk) those of a token's eight dimensions from 8 * chunk on;
// sees(row, token) whether a row, 0 to 15, sees a token; scale(v, c) the scales of int8, of K (v 0)
// or V (1), of the tokens key_token(2t + c, 0..3).
template <int DIM, int OUT, class KV, class Key, class Value, class Sees, class Scale>
DEVICE void step(Rows<DIM, OUT, KV> &r, const Scores &how, int dim, int out, Key key, Value value, Sees sees, Scale scale) {
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	float s[4][4] = {};
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
		if (k * 16 >= dim) break;
		const uint4 a = key(k * 8 + t), b = key(k * 8 + t + 4), q = r.KEPT ? r.q[r.KEPT ? k : 0] : query<KV>(r.lo, r.hi, k);
		mma(s[0], q, a.x, b.x);
		mma(s[1], q, a.y, b.y);
		mma(s[2], q, a.z, b.z);
		mma(s[3], q, a.w, b.w);
	}
	if (KV::INT8)
#pragma unroll
		for (int c = 0; c < 2; c++) {
			const float4 by = scale(0, c);
			s[0][c] *= by.x, s[1][c] *= by.y, s[2][c] *= by.z, s[3][c] *= by.w;
			s[0][c + 2] *= by.x, s[1][c + 2] *= by.y, s[2][c + 2] *= by.z, s[3][c + 2] *= by.w;
		}
	float top[2] = {r.top[0], r.top[1]};
#pragma unroll
	for (int j = 0; j < 4; j++)
#pragma unroll
		for (int c = 0; c < 4; c++) {
			s[j][c] = sees(g + c / 2 * 8, key_token(2 * t + c % 2, j)) ? score(how, s[j][c]) : NONE;
			top[c / 2] = fmaxf(top[c / 2], s[j][c]);
		}
	float sum[2] = {0, 0}, shrink[2];
#pragma unroll
	for (int h = 0; h < 2; h++) {
		top[h] = quad_max(top[h]);
		// A row that has seen nothing has no largest score to subtract.
		const float base = top[h] == NONE ? 0 : top[h];
		shrink[h] = exp2_fast(r.top[h] - base);
#pragma unroll
		for (int j = 0; j < 4; j++)
#pragma unroll
			for (int c = 2 * h; c < 2 * h + 2; c++) {
				s[j][c] = exp2_fast(s[j][c] - base);
				sum[h] += s[j][c];
			}
		r.top[h] = top[h];
		r.norm[h] = r.norm[h] * shrink[h] + quad_sum(sum[h]);
	}
	// Weights take the scales of values, but for tokens that nobody sees, whose scales may be anything.
	if (KV::INT8)
#pragma unroll
		for (int c = 0; c < 2; c++) {
			const float4 by = scale(1, c);
			const float scales[4] = {by.x, by.y, by.z, by.w};
#pragma unroll
			for (int j = 0; j < 4; j++)
#pragma unroll
				for (int h = 0; h < 2; h++) s[j][c + 2 * h] = s[j][c + 2 * h] > 0 ? s[j][c + 2 * h] * scales[j] : 0;
		}
#pragma unroll
	for (int i = 0; i < OUT / 8; i++)
#pragma unroll
		for (int c = 0; c < 4; c++) r.out[i][c] *= shrink[c / 2];
#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int j = 2 * half;
		const uint4 p = {pack2(s[j][0], s[j][1]), pack2(s[j][2], s[j][3]), pack2(s[j + 1][0], s[j + 1][1]), pack2(s[j + 1][2], s[j + 1][3])};
#pragma unroll
		for (int d = 0; d < OUT / 64; d++) {
			if (d * 64 >= out) break;
			const uint4 a = value(key_token(2 * t, j), d * 8 + g), b = value(key_token(2 * t + 1, j), d * 8 + g);
			const uint4 e = value(key_token(2 * t, j + 1), d * 8 + g), f = value(key_token(2 * t + 1, j + 1), d * 8 + g);
			pairs(r.out[d * 8 + 0], r.out[d * 8 + 1], p, a.x, b.x, e.x, f.x);
			pairs(r.out[d * 8 + 2], r.out[d * 8 + 3], p, a.y, b.y, e.y, f.y);
			pairs(r.out[d * 8 + 4], r.out[d * 8 + 5], p, a.z, b.z, e.z, f.z);
			pairs(r.out[d * 8 + 6], r.out[d * 8 + 7], p, a.w, b.w, e.w, f.w);
		}
	}
}
