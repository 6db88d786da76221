// Products of weights of eight bits with few rows of activations, which wait for memory only.
#include "gemv.h"
#include "weights.h"

// Sixteen values of a row of x.
struct Sixteen {
	Eight lo, hi;
};

DEVICE Sixteen widen16(const bf16 *x) { return {widen8(((const uint4 *)x)[0]), widen8(((const uint4 *)x)[1])}; }

// As dots of gemv.cu, for weights W. Those with blocks scale sums of sixteen products.
template <class W, int M>
DEVICE void dots8(float (&sums)[GEMV_ROWS][M], const bf16 *x, const unsigned char *w, const void *scales, const int (&row)[GEMV_ROWS], int tokens, int in) {
	for (int r = 0; r < GEMV_ROWS; r++)
		for (int t = 0; t < M; t++) sums[r][t] = 0;
	const int lane = threadIdx.x % 32;
#pragma unroll 1
	for (int i = lane; i < in / 16; i += 32) {
		uint4 words[GEMV_ROWS];
		float scale[GEMV_ROWS];
#pragma unroll
		for (int r = 0; r < GEMV_ROWS; r++) {
			words[r] = load_once((const uint4 *)(w + (long long)row[r] * in) + i);
			scale[r] = W::scale(scales, row[r], in, i);
		}
		float weights[GEMV_ROWS][16];
#pragma unroll
		for (int r = 0; r < GEMV_ROWS; r++)
#pragma unroll
			for (int j = 0; j < 16; j++) weights[r][j] = W::value(j < 4 ? words[r].x : j < 8 ? words[r].y : j < 12 ? words[r].z : words[r].w, j % 4);
#pragma unroll
		for (int t = 0; t < M; t++) {
			// Rows past the last one repeat it, and are not stored.
			const Sixteen a = widen16(x + (long long)min(t, tokens - 1) * in + i * 16);
#pragma unroll
			for (int r = 0; r < GEMV_ROWS; r++) {
				float part = W::BLOCKS ? 0 : sums[r][t];
#pragma unroll
				for (int j = 0; j < 16; j++) part += weights[r][j] * (j < 8 ? a.lo.v[j % 8] : a.hi.v[j % 8]);
				sums[r][t] = W::BLOCKS ? sums[r][t] + part * scale[r] : part;
			}
		}
	}
#pragma unroll
	for (int r = 0; r < GEMV_ROWS; r++)
#pragma unroll
		for (int t = 0; t < M; t++) {
			sums[r][t] = warp_sum(sums[r][t]);
			if (!W::BLOCKS) sums[r][t] *= ((const float *)scales)[row[r]];
		}
}

// out = x w^T + bias as gemv of gemv.cu, for M tokens of block y. in is a multiple of 32 for
// Q8, of 16 for the others.
template <class W, int M>
DEVICE void gemv8(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	const int first = gemv_first();
	if (first >= rows) return;
	int row[GEMV_ROWS];
	for (int r = 0; r < GEMV_ROWS; r++) row[r] = min(first + r, rows - 1);
	const int skip = blockIdx.y * M;
	x += (long long)skip * in, tokens = min(M, tokens - skip);
	out = wide ? (void *)((float *)out + (long long)skip * rows) : (bf16 *)out + (long long)skip * rows;
	float sums[GEMV_ROWS][M];
	dots8<W, M>(sums, x, w, scales, row, tokens, in);
	put_dots<M>(out, bias, sums, first, tokens, rows, wide);
}

KERNEL(128) gemv_1_q8(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<Q8, 1>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_2_q8(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<Q8, 2>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_4_q8(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<Q8, 4>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_1_e4m3(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<E4M3, 1>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_2_e4m3(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<E4M3, 2>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_4_e4m3(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<E4M3, 4>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_1_e4m3b(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<E4M3B, 1>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_2_e4m3b(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<E4M3B, 2>(out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemv_4_e4m3b(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	gemv8<E4M3B, 4>(out, x, w, scales, bias, tokens, rows, in, wide);
}
