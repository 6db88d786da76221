// Products of weights of eight bits with many rows of activations, on tensor cores.
#include "gemm8.h"

// As gemm_tile of gemm.cu, for weights W. in is a multiple of 32 for Q8, of 16 for the others.
template <class W, class Tile, int TM, int TN>
DEVICE void gemm8_tile(unsigned char *shared, void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	const int first = blockIdx.y * TM;
	Tile::run(
	    shared, [&](int m) { return first + m < tokens ? x + (long long)(first + m) * in : (const bf16 *)0; }, w, scales, blockIdx.x * TN, rows, in,
	    [&](int n) { return make_float2(bias ? widen(bias[n]) : 0, bias && n + 1 < rows ? widen(bias[n + 1]) : 0); },
	    [&](int m, int n, float a, float b, float2 bias) {
		    const long long token = first + m;
		    if (token >= tokens) return;
		    a += bias.x, b += bias.y;
		    if (!wide) {
			    put((bf16 *)out, token, n, rows, a, b);
			    return;
		    }
		    float *to = (float *)out + token * rows + n;
		    to[0] = a;
		    if (n + 1 < rows) to[1] = b;
	    });
}

KERNEL(256) gemm_q8(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm8_tile<Q8, Gemm8<Q8, 128, 128, 2, 4, 4>, 128, 128>(shared, out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemm_64_q8(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm8_tile<Q8, Gemm8<Q8, 64, 32, 2, 2, 8>, 64, 32>(shared, out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(256) gemm_e4m3(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm8_tile<E4M3, Gemm8<E4M3, 128, 128, 2, 4, 4>, 128, 128>(shared, out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemm_64_e4m3(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm8_tile<E4M3, Gemm8<E4M3, 64, 32, 2, 2, 8>, 64, 32>(shared, out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(256) gemm_e4m3b(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm8_tile<E4M3B, Gemm8<E4M3B, 128, 128, 2, 4, 4>, 128, 128>(shared, out, x, w, scales, bias, tokens, rows, in, wide);
}

KERNEL(128) gemm_64_e4m3b(void *out, const bf16 *x, const unsigned char *w, const void *scales, const bf16 *bias, int tokens, int rows, int in, int wide) {
	DYNAMIC_SHARED(shared);
	gemm8_tile<E4M3B, Gemm8<E4M3B, 64, 32, 2, 2, 8>, 64, 32>(shared, out, x, w, scales, bias, tokens, rows, in, wide);
}
