// Tiles of products of weights of eight bits with activations, on tensor cores.
#pragma once
#include "gemm.h"
#include "weights.h"

// As Gemm, for weights W. Products take the values of 32 in an order of their own, so that
// lanes load operands as they are: with t = lane % 4 the pairs t and t + 4 of the first
// product are the values 8t to 8t + 3, and those of the second one the next four. Weights
// become bf16 in registers; sums of blocks are scaled in float32.
template <class W, int TM, int TN, int WM, int WN, int STAGES> struct Gemm8 {
	enum {
		THREADS = WM * WN * 32,
		TK = 64,
		CHUNKS = TK / 8, // of 16 bytes in a row of x
		X_BYTES = TM * TK * 2,
		W_BYTES = TN * TK,
		STAGE_BYTES = X_BYTES + W_BYTES + (W::BLOCKS ? TN * 4 : 0),
		X_PIECES = TM * CHUNKS / THREADS,
		W_PIECES = TN * (TK / 16) / THREADS,
		M = TM / WM / 16, // products of 16 rows of x that a warp has
		N = TN / WN / 8,  // and of 8 rows of w
	};

	// Where a tile of x holds eight values of a row: two rows of a half are in different banks.
	DEVICE unsigned at(int row, int chunk) { return (row * CHUNKS + (chunk ^ (row & 1) * 4)) * 16; }

	// As Gemm's; store gets what about(n) returned, too, which is asked once. in is a multiple
	// of 16, and of 32 for Q8.
	template <class X, class About, class Store>
	DEVICE void run(unsigned char *shared, X x, const unsigned char *w, const void *scales, int first, int rows, int in, About about, Store store) {
		const unsigned base = shared_address(shared);
		const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
		const int warp_m = warp / WN * (M * 16), warp_n = warp % WN * (N * 8);
		const int steps = (in + TK - 1) / TK;
		const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS, stride = THREADS / CHUNKS;
		const bf16 *from[X_PIECES];
#pragma unroll
		for (int i = 0; i < X_PIECES; i++) from[i] = x(row + i * stride);
		float sums[M][N][4] = {};

		auto start = [&](int step) {
			if (step < steps) {
				const unsigned to = base + step % STAGES * STAGE_BYTES;
				const int k = step * TK + chunk * 8;
#pragma unroll
				for (int i = 0; i < X_PIECES; i++) {
					const bool there = from[i] && k < in;
					copy_async(to + at(row + i * stride, chunk), there ? (const void *)(from[i] + k) : w, there ? 16 : 0);
				}
#pragma unroll
				for (int i = 0; i < W_PIECES; i++) {
					// Both halves of a tile have 32 values of each row.
					const int piece = threadIdx.x + i * THREADS, n = piece / 4, part = piece % 4, kw = step * TK + part * 16;
					const bool there = first + n < rows && kw < in;
					copy_async(to + X_BYTES + ((part / 2 * TN + n) * 2 + part % 2) * 16, there ? w + (long long)(first + n) * in + kw : w, there ? 16 : 0);
				}
				if (W::BLOCKS && threadIdx.x < TN) {
					const int n = threadIdx.x;
					const bool there = first + n < rows;
					const typename W::Scale *word = (const typename W::Scale *)scales + (there ? W::word(first + n, in, step) : 0);
					copy_async4(to + X_BYTES + W_BYTES + n * 4, word, there ? W::word_bytes(in, step) : 0);
				}
			}
			copy_commit();
		};
#pragma unroll 1
		for (int s = 0; s < STAGES - 1; s++) start(s);

#pragma unroll 1
		for (int step = 0; step < steps; step++) {
			copy_wait<STAGES - 2>();
			__syncthreads(); // all copies of this step have come, and nobody reads the stage that is filled next
			start(step + STAGES - 1);
			const unsigned char *stage = shared + step % STAGES * STAGE_BYTES, *tile = stage + X_BYTES;
			uint2 scale[W::BLOCKS ? N : 1]; // words of the rows 2t and 2t + 1
			if (W::BLOCKS)
#pragma unroll
				for (int j = 0; j < N; j++) scale[W::BLOCKS ? j : 0] = ((const uint2 *)(tile + W_BYTES))[(warp_n + j * 8) / 2 + t];
#pragma unroll 1
			for (int half = 0; half < 2; half++) {
				uint2 b[N][2];
#pragma unroll
				for (int j = 0; j < N; j++) {
					const uint2 words = ((const uint2 *)(tile + (half * TN + warp_n + j * 8 + g) * 32))[t];
					b[j][0] = W::pairs(words.x), b[j][1] = W::pairs(words.y);
				}
#pragma unroll
				for (int i = 0; i < M; i++) {
					const int m = warp_m + i * 16 + g;
					const uint4 lo = *(const uint4 *)(stage + at(m, half * 4 + t)), hi = *(const uint4 *)(stage + at(m + 8, half * 4 + t));
#pragma unroll
					for (int j = 0; j < N; j++) {
						if (!W::BLOCKS) {
							mma(sums[i][j], {lo.x, hi.x, lo.y, hi.y}, b[j][0].x, b[j][0].y);
							mma(sums[i][j], {lo.z, hi.z, lo.w, hi.w}, b[j][1].x, b[j][1].y);
							continue;
						}
						float part[4] = {};
						mma(part, {lo.x, hi.x, lo.y, hi.y}, b[j][0].x, b[j][0].y);
						mma(part, {lo.z, hi.z, lo.w, hi.w}, b[j][1].x, b[j][1].y);
						const uint2 s = scale[W::BLOCKS ? j : 0];
						const float even = W::half(s.x, half), odd = W::half(s.y, half);
						sums[i][j][0] += part[0] * even, sums[i][j][1] += part[1] * odd;
						sums[i][j][2] += part[2] * even, sums[i][j][3] += part[3] * odd;
					}
				}
			}
		}
		copy_wait<0>();

#pragma unroll
		for (int j = 0; j < N; j++) {
			const int n = first + warp_n + j * 8 + t * 2;
			if (n >= rows) continue;
			float by[2] = {1, 1};
			if (!W::BLOCKS) by[0] = ((const float *)scales)[n], by[1] = n + 1 < rows ? ((const float *)scales)[n + 1] : 0;
			const auto more = about(n);
#pragma unroll
			for (int i = 0; i < M; i++)
#pragma unroll
				for (int half = 0; half < 2; half++)
					store(warp_m + i * 16 + half * 8 + g, n, sums[i][j][half * 2] * by[0], sums[i][j][half * 2 + 1] * by[1], more);
		}
	}
};
