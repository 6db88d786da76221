// Products of weights with few rows of activations, which wait for memory only.
#include "gemv.h"

// Dot products of the warp's rows of w with M rows of x, in every lane.
template <int M> DEVICE void dots(float (&sums)[GEMV_ROWS][M], const bf16 *x, const bf16 *const (&w)[GEMV_ROWS], int tokens, int in) {
	for (int r = 0; r < GEMV_ROWS; r++)
		for (int t = 0; t < M; t++) sums[r][t] = 0;
	const int lane = threadIdx.x % 32;
#pragma unroll 2
	for (int i = lane; i < in / 8; i += 32) {
		uint4 words[GEMV_ROWS];
#pragma unroll
		for (int r = 0; r < GEMV_ROWS; r++) words[r] = load_once((const uint4 *)w[r] + i);
		Eight weights[GEMV_ROWS];
#pragma unroll
		for (int r = 0; r < GEMV_ROWS; r++) weights[r] = widen8(words[r]);
#pragma unroll
		for (int t = 0; t < M; t++) {
			// Rows past the last one repeat it, and are not stored.
			const Eight a = widen8(((const uint4 *)(x + (long long)min(t, tokens - 1) * in))[i]);
#pragma unroll
			for (int r = 0; r < GEMV_ROWS; r++)
#pragma unroll
				for (int j = 0; j < 8; j++) sums[r][t] += weights[r].v[j] * a.v[j];
		}
	}
#pragma unroll
	for (int r = 0; r < GEMV_ROWS; r++)
#pragma unroll
		for (int t = 0; t < M; t++) sums[r][t] = warp_sum(sums[r][t]);
}

// out = x w^T + bias for up to M tokens: x is [tokens][in], w is [rows][in], out is
// [tokens][rows] in bf16, or in float32 with wide. in is a multiple of 8. The order of a
// sum does not depend on M.
template <int M> DEVICE void gemv(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	const int first = gemv_first();
	if (first >= rows) return;
	const bf16 *from[GEMV_ROWS];
	for (int r = 0; r < GEMV_ROWS; r++) from[r] = w + (long long)min(first + r, rows - 1) * in;
	float sums[GEMV_ROWS][M];
	dots<M>(sums, x, from, tokens, in);
	put_dots<M>(out, bias, sums, first, tokens, rows, wide);
}

KERNEL(128) gemv_1(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv<1>(out, x, w, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_2(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv<2>(out, x, w, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_4(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv<4>(out, x, w, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_8(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv<8>(out, x, w, bias, tokens, rows, in, wide);
}
