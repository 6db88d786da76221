// Tiles of products of weights with activations, on tensor cores.
#pragma once
#include "device.h"

// A tile of TM rows of x and TN rows of w, which WM x WN warps share. STAGES tiles of both,
// of TK values each, are in shared memory: one is computed with while the others come.
template <int TM, int TN, int TK, int WM, int WN, int STAGES> struct Gemm {
	enum {
		THREADS = WM * WN * 32,
		CHUNKS = TK / 8, // of 16 bytes in a row of a tile
		X_BYTES = TM * TK * 2,
		STAGE_BYTES = X_BYTES + TN * TK * 2,
		X_PIECES = TM * CHUNKS / THREADS, // that a thread copies for each step
		W_PIECES = TN * CHUNKS / THREADS,
		M = TM / WM / 16, // products of 16 rows of x that a warp has
		N = TN / WN / 16, // and pairs of products of 8 rows of w
	};

	// Where a tile holds eight values of a row: chunks are exchanged so that eight rows of a
	// matrix lie in eight different banks.
	DEVICE unsigned at(int row, int chunk) { return (row * CHUNKS + (chunk ^ (CHUNKS == 8 ? row & 7 : row / 2 & 3))) * 16; }

	// Computes the tile whose rows of w, of in values each, begin at first. x(m) is where its
	// row m of x is, null for none, which counts as zeros. store(m, n, a, b) gets the sums of
	// row m of x with the rows n and n + 1 of w, of which the last may not be there. Sums run
	// over the values in order, 16 at a time: they depend neither on other rows nor on the size
	// of tiles.
	template <class X, class Store> DEVICE void run(unsigned char *shared, X x, const bf16 *w, int first, int rows, int in, Store store) {
		const unsigned base = shared_address(shared);
		const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
		const int warp_m = warp / WN * (M * 16), warp_n = warp % WN * (N * 16);
		const int steps = (in + TK - 1) / TK;
		const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS, stride = THREADS / CHUNKS;
		const bf16 *from[X_PIECES];
#pragma unroll
		for (int i = 0; i < X_PIECES; i++) from[i] = x(row + i * stride);
		float sums[M][2 * N][4] = {};

		auto copy = [&](unsigned to, const bf16 *values, int k) { copy_async(to, values ? values + k : w, values ? 16 : 0); };
		auto start = [&](int step) {
			if (step < steps) {
				const unsigned to = base + step % STAGES * STAGE_BYTES;
				const int k = step * TK + chunk * 8;
#pragma unroll
				for (int i = 0; i < X_PIECES; i++) copy(to + at(row + i * stride, chunk), k < in ? from[i] : 0, k);
#pragma unroll
				for (int i = 0; i < W_PIECES; i++) {
					const int n = first + row + i * stride;
					copy(to + X_BYTES + at(row + i * stride, chunk), n < rows && k < in ? w + (long long)n * in : 0, k);
				}
			}
			copy_commit(); // also an empty group, so that the number of groups says which have come
		};
		for (int s = 0; s < STAGES - 1; s++) start(s);

		for (int step = 0; step < steps; step++) {
			copy_wait<STAGES - 2>();
			__syncthreads(); // all copies of this step have come, and nobody reads the stage that is filled next
			start(step + STAGES - 1);
			const unsigned at_x = base + step % STAGES * STAGE_BYTES, at_w = at_x + X_BYTES;
#pragma unroll
			for (int k = 0; k < TK / 16; k++) {
				uint4 a[M], b[N];
#pragma unroll
				for (int i = 0; i < M; i++) a[i] = load_matrix(at_x + at(warp_m + i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
				for (int i = 0; i < N; i++) b[i] = load_matrix(at_w + at(warp_n + i * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
#pragma unroll
				for (int i = 0; i < M; i++)
#pragma unroll
					for (int j = 0; j < N; j++) {
						mma(sums[i][2 * j], a[i], b[j].x, b[j].y);
						mma(sums[i][2 * j + 1], a[i], b[j].z, b[j].w);
					}
			}
		}
		copy_wait<0>();

#pragma unroll
		for (int i = 0; i < M; i++)
#pragma unroll
			for (int j = 0; j < 2 * N; j++) {
				const int n = first + warp_n + j * 8 + lane % 4 * 2;
				if (n >= rows) continue;
#pragma unroll
				for (int half = 0; half < 2; half++) store(warp_m + i * 16 + half * 8 + lane / 4, n, sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
			}
	}
};

// Rounds the values n and n + 1 of a row; n is even.
DEVICE void put(bf16 *out, long long row, int n, int rows, float a, float b) {
	bf16 *to = out + row * rows + n;
	if (rows % 2 == 0) {
		*(unsigned *)to = pack2(a, b);
		return;
	}
	to[0] = narrow(a);
	if (n + 1 < rows) to[1] = narrow(b);
}
