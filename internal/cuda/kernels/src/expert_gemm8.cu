// Products of experts' weights of eight bits with the rows of activations that belong to them,
// on tensor cores.
#include "gemm8.h"
#include "experts.h"

// As expert_tile of expert_gemm.cu, for weights W: scales are those of all experts, too. in is
// a multiple of 32 for Q8, of 16 for the others.
template <class W, class Tile, int TN>
DEVICE void expert8_tile(unsigned char *shared, bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows,
                         int in) {
	if (blockIdx.y >= *tile_count) return;
	const Pairs run = tiles[blockIdx.y];
	const void *own = scales + (long long)run.expert * rows * W::row_bytes(in);
	Tile::run(
	    shared, [&](int m) { return run.first + m < run.past ? x + (long long)(order[run.first + m] / each) * in : (const bf16 *)0; },
	    w + (long long)run.expert * rows * in, own, blockIdx.x * TN, rows, in,
	    [](int) { return 0; },
	    [&](int m, int n, float a, float b, int) {
		    if (run.first + m < run.past) put(out, order[run.first + m], n, rows, a, b);
	    });
}

KERNEL(256) expert_gemm_q8(bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert8_tile<Q8, Gemm8<Q8, 64, 128, 2, 4, 4>, 128>(shared, out, x, w, scales, tile_count, tiles, order, each, rows, in);
}

KERNEL(128) expert_gemm_16_q8(bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert8_tile<Q8, Gemm8<Q8, 16, 64, 1, 4, 6>, 64>(shared, out, x, w, scales, tile_count, tiles, order, each, rows, in);
}

KERNEL(256) expert_gemm_e4m3(bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert8_tile<E4M3, Gemm8<E4M3, 64, 128, 2, 4, 4>, 128>(shared, out, x, w, scales, tile_count, tiles, order, each, rows, in);
}

KERNEL(128) expert_gemm_16_e4m3(bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert8_tile<E4M3, Gemm8<E4M3, 16, 64, 1, 4, 6>, 64>(shared, out, x, w, scales, tile_count, tiles, order, each, rows, in);
}

KERNEL(256) expert_gemm_e4m3b(bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert8_tile<E4M3B, Gemm8<E4M3B, 64, 128, 2, 4, 4>, 128>(shared, out, x, w, scales, tile_count, tiles, order, each, rows, in);
}

KERNEL(128) expert_gemm_16_e4m3b(bf16 *out, const bf16 *x, const unsigned char *w, const unsigned char *scales, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert8_tile<E4M3B, Gemm8<E4M3B, 16, 64, 1, 4, 6>, 64>(shared, out, x, w, scales, tile_count, tiles, order, each, rows, in);
}
