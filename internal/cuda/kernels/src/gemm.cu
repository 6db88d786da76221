// Products of weights with many rows of activations, on tensor cores.
#include "device.h"

// A tile of TM tokens and TN rows of w, which WM x WN warps share. STAGES tiles of x and
// of w, of TK values each, are in shared memory: one is computed with while the others
// come.
template <int TM, int TN, int TK, int WM, int WN, int STAGES> struct Gemm {
	enum {
		THREADS = WM * WN * 32,
		CHUNKS = TK / 8, // of 16 bytes in a row of a tile
		X_BYTES = TM * TK * 2,
		STAGE_BYTES = X_BYTES + TN * TK * 2,
		M = TM / WM / 16, // products of 16 tokens that a warp has
		N = TN / WN / 16, // and pairs of products of 8 rows
	};

	// Where a tile holds eight values of a row: chunks are exchanged so that eight rows of a
	// matrix lie in eight different banks.
	DEVICE unsigned at(int row, int chunk) { return (row * CHUNKS + (chunk ^ (CHUNKS == 8 ? row & 7 : row / 2 & 3))) * 16; }

	// Starts to copy rows of a matrix from first on, values from k on; what the matrix does
	// not have is zero.
	template <int ROWS> DEVICE void copy(unsigned to, const bf16 *matrix, int first, int rows, int k, int in) {
#pragma unroll
		for (int i = 0; i < ROWS * CHUNKS / THREADS; i++) {
			const int piece = threadIdx.x + i * THREADS, row = piece / CHUNKS, chunk = piece % CHUNKS;
			const bool there = first + row < rows && k + chunk * 8 < in;
			const bf16 *from = there ? matrix + (long long)(first + row) * in + k + chunk * 8 : matrix;
			copy_async(to + at(row, chunk), from, there ? 16 : 0);
		}
	}

	// out = x w^T + bias for the tile of block y (tokens) and x (rows).
	DEVICE void run(unsigned char *shared, void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
		const unsigned base = shared_address(shared);
		const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
		const int first_m = blockIdx.y * TM, first_n = blockIdx.x * TN;
		const int warp_m = warp / WN * (M * 16), warp_n = warp % WN * (N * 16);
		const int steps = (in + TK - 1) / TK;
		float sums[M][2 * N][4] = {};

		auto start = [&](int step) {
			if (step < steps) {
				const unsigned to = base + step % STAGES * STAGE_BYTES;
				copy<TM>(to, x, first_m, tokens, step * TK, in);
				copy<TN>(to + X_BYTES, w, first_n, rows, step * TK, in);
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
				const int n = first_n + warp_n + j * 8 + lane % 4 * 2;
				const float b0 = bias && n < rows ? widen(bias[n]) : 0, b1 = bias && n + 1 < rows ? widen(bias[n + 1]) : 0;
#pragma unroll
				for (int half = 0; half < 2; half++) {
					const int m = first_m + warp_m + i * 16 + half * 8 + lane / 4;
					if (m >= tokens || n >= rows) continue;
					const long long to = (long long)m * rows + n;
					const float v0 = sums[i][j][half * 2] + b0, v1 = sums[i][j][half * 2 + 1] + b1;
					if (wide) {
						((float *)out)[to] = v0;
						if (n + 1 < rows) ((float *)out)[to + 1] = v1;
					} else if (n + 1 < rows && rows % 2 == 0) {
						*(unsigned *)((bf16 *)out + to) = pack2(v0, v1);
					} else {
						((bf16 *)out)[to] = narrow(v0);
						if (n + 1 < rows) ((bf16 *)out)[to + 1] = narrow(v1);
					}
				}
			}
	}
};

// out = x w^T + bias: x is [tokens][in], w is [rows][in], out is [tokens][rows] in bf16, or in
// float32 with wide. in is a multiple of 8. Sums run over k in order, 16 at a time, so that a
// token's result depends neither on the others nor on which of these kernels computes it.

// For many tokens: tensor cores are what limits.
KERNEL(256) gemm(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	Gemm<128, 128, 32, 2, 4, 4>::run(shared, out, x, w, bias, tokens, rows, in, wide);
}

// For some tokens: memory is what limits, and small tiles of w are for many multiprocessors.
KERNEL(128) gemm_64(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	Gemm<64, 32, 64, 4, 1, 6>::run(shared, out, x, w, bias, tokens, rows, in, wide);
}
