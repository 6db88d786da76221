// Products of weights with many rows of activations, on the tensor cores of compute
// capability 9.0.
#include "gemm_sm90a.h"

// out = x w^T + bias, as in gemm.cu: x is [tokens][in], w is [rows][in], with boxes of 64 x 64
// values, and rows is a multiple of 8.
template <class Tile> DEVICE void gemm_tiles(unsigned char *shared, const TensorMap &x, const TensorMap &w, void *out, const bf16 *bias, int tokens, int rows, int in, int wide, int group) {
	Tile::run(shared, x, w, Tile::Order::make(group, tokens, rows), in, [](int n, int i) { return n + i; }, [&](int m, int n, auto &d) {
		const int lane = threadIdx.x % 32, first = m + threadIdx.x / 32 % 4 * 16 + lane / 4, pair = lane % 4 * 2;
		const int blocks = sizeof d / 16; // of 8 columns
		if (bias)
#pragma unroll
			for (int j = 0; j < blocks; j++) {
				if (n + j * 8 >= rows) continue;
				const unsigned b = *(const unsigned *)(bias + n + j * 8 + pair);
				d[j * 4] += low(b), d[j * 4 + 1] += high(b), d[j * 4 + 2] += low(b), d[j * 4 + 3] += high(b);
			}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int token = first + half * 8;
			const long long at = (long long)token * rows + n;
			const int end = token < tokens ? rows : 0;
			if (wide) {
#pragma unroll
				for (int j = 0; j < blocks; j++)
					if (n + j * 8 < end) *(float2 *)((float *)out + at + j * 8 + pair) = make_float2(d[j * 4 + half * 2], d[j * 4 + half * 2 + 1]);
				continue;
			}
#pragma unroll
			for (int j = 0; j < blocks; j += 4) {
				unsigned word[4];
#pragma unroll
				for (int i = 0; i < 4; i++) word[i] = pack2(d[(j + i) * 4 + half * 2], d[(j + i) * 4 + half * 2 + 1]);
				transpose(word);
				const int own = (j + lane % 4) * 8;
				if (n + own < end) *(uint4 *)((bf16 *)out + at + own) = make_uint4(word[0], word[1], word[2], word[3]);
			}
		}
	});
}

#define GEMM(name, ...) \
	KERNEL_ALONE(384) name(MAP x, MAP w, void *out, const bf16 *bias, int tokens, int rows, int in, int wide, int group) { \
		DYNAMIC_SHARED(shared); \
		gemm_tiles<WarpGroups<__VA_ARGS__>>(shared, x, w, out, bias, tokens, rows, in, wide, group); \
	}

GEMM(gemm_sm90a_128x256, 2, 1, 256, 4)
GEMM(gemm_sm90a_128x128, 2, 1, 128, 6)
GEMM(gemm_sm90a_64x256, 1, 2, 128, 5)
GEMM(gemm_sm90a_128x64, 2, 1, 64, 8)
