// Products of weights with many rows of activations, on tensor cores.
#include "device.h"

const int TILE_M = 128, TILE_N = 128, TILE_K = 32, STAGES = 4;
const int TILE_BYTES = TILE_M * TILE_K * 2; // of x, and of w

// Where a tile holds eight values of a row: rows have 64 bytes, and chunks of 16 bytes are
// exchanged so that eight rows of a matrix lie in eight different banks.
DEVICE unsigned tile_at(int row, int chunk) { return row * 64 + ((chunk ^ (row / 2 & 3)) * 16); }

// Starts to copy rows [first, first + 128) of a matrix, values [k, k + 32); what the matrix
// does not have is zero.
DEVICE void copy_tile(unsigned to, const bf16 *matrix, int first, int rows, int k, int in) {
#pragma unroll
	for (int i = 0; i < TILE_M * 4 / 256; i++) {
		const int piece = threadIdx.x + i * 256, row = piece / 4, chunk = piece % 4;
		const bool there = first + row < rows && k + chunk * 8 < in;
		const bf16 *from = there ? matrix + (long long)(first + row) * in + k + chunk * 8 : matrix;
		copy_async(to + tile_at(row, chunk), from, there ? 16 : 0);
	}
}

// out = x w^T + bias, a tile of 128 tokens (block y) and 128 rows of w (block x): x is
// [tokens][in], w is [rows][in], out is [tokens][rows] in bf16, or in float32 with wide. in
// is a multiple of 8. Sums run over k in order, so that a token's result does not depend on
// the others. Shared memory: STAGES tiles of x and of w.
KERNEL(256) gemm(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	const unsigned base = shared_address(shared);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int first_m = blockIdx.y * TILE_M, first_n = blockIdx.x * TILE_N;
	const int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32; // a warp has 64 tokens and 32 rows
	const int steps = (in + TILE_K - 1) / TILE_K;
	float sums[4][4][4] = {};

	auto start = [&](int step) {
		if (step < steps) {
			const unsigned to = base + step % STAGES * 2 * TILE_BYTES;
			copy_tile(to, x, first_m, tokens, step * TILE_K, in);
			copy_tile(to + TILE_BYTES, w, first_n, rows, step * TILE_K, in);
		}
		copy_commit(); // also an empty group, so that the number of groups says which have come
	};
	for (int s = 0; s < STAGES - 1; s++) start(s);

	for (int step = 0; step < steps; step++) {
		copy_wait<STAGES - 2>();
		__syncthreads(); // all copies of this step have come, and nobody reads the stage that is filled next
		start(step + STAGES - 1);
		const unsigned at_x = base + step % STAGES * 2 * TILE_BYTES, at_w = at_x + TILE_BYTES;
#pragma unroll
		for (int k = 0; k < TILE_K / 16; k++) {
			uint4 a[4], b[2];
#pragma unroll
			for (int i = 0; i < 4; i++) a[i] = load_matrix(at_x + tile_at(warp_m + i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
			for (int i = 0; i < 2; i++) b[i] = load_matrix(at_w + tile_at(warp_n + i * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 2; j++) {
					mma(sums[i][2 * j], a[i], b[j].x, b[j].y);
					mma(sums[i][2 * j + 1], a[i], b[j].z, b[j].w);
				}
		}
	}
	copy_wait<0>();

#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int n = first_n + warp_n + j * 8 + lane % 4 * 2;
			const float b0 = bias && n < rows ? widen(bias[n]) : 0, b1 = bias && n + 1 < rows ? widen(bias[n + 1]) : 0;
#pragma unroll
			for (int half = 0; half < 2; half++) {
				const int m = first_m + warp_m + i * 16 + half * 8 + lane / 4;
				if (m >= tokens || n >= rows) continue;
				const long long at = (long long)m * rows + n;
				const float v0 = sums[i][j][half * 2] + b0, v1 = sums[i][j][half * 2 + 1] + b1;
				if (wide) {
					((float *)out)[at] = v0;
					if (n + 1 < rows) ((float *)out)[at + 1] = v1;
				} else if (n + 1 < rows && rows % 2 == 0) {
					*(unsigned *)((bf16 *)out + at) = pack2(v0, v1);
				} else {
					((bf16 *)out)[at] = narrow(v0);
					if (n + 1 < rows) ((bf16 *)out)[at + 1] = narrow(v1);
				}
			}
		}
}
