// Products of weights with many rows of activations, on tensor cores.
#include "gemm.h"

// out = x w^T + bias: x is [tokens][in], w is [rows][in], out is [tokens][rows] in bf16, or in
// float32 with wide. in is a multiple of 8. A block computes a tile of rows (x) and tokens (y).
template <class Tile, int TM, int TN> DEVICE void gemm_tile(unsigned char *shared, void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	const int first = blockIdx.y * TM;
	Tile::run(
	    shared, [&](int m) { return first + m < tokens ? x + (long long)(first + m) * in : (const bf16 *)0; }, w, blockIdx.x * TN, rows, in,
	    [&](int m, int n, float a, float b) {
		    const long long token = first + m;
		    if (token >= tokens) return;
		    if (bias) {
			    a += widen(bias[n]);
			    if (n + 1 < rows) b += widen(bias[n + 1]);
		    }
		    if (wide) {
			    float *to = (float *)out + token * rows + n;
			    to[0] = a;
			    if (n + 1 < rows) to[1] = b;
		    } else {
			    put((bf16 *)out, token, n, rows, a, b);
		    }
	    });
}

// For many tokens: tensor cores are what limits.
KERNEL(256) gemm(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm_tile<Gemm<128, 128, 32, 2, 4, 4>, 128, 128>(shared, out, x, w, bias, tokens, rows, in, wide);
}

// For some tokens: memory is what limits, and small tiles of w are for many multiprocessors.
KERNEL(128) gemm_64(void *out, const bf16 *x, const bf16 *w, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm_tile<Gemm<64, 32, 64, 4, 1, 6>, 64, 32>(shared, out, x, w, bias, tokens, rows, in, wide);
}
