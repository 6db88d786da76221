// Products of experts' weights with the rows of activations that belong to them, on tensor
// cores.
#include "gemm.h"
#include "experts.h"

// out[pair] = x[pair / each] w[expert]^T for all pairs of a plan: w is [expert][rows][in], and
// each is how many pairs share a row of x. in is a multiple of 8. A block computes a tile of
// rows (x) for a run of pairs (y); there may be more blocks than runs.
template <class Tile, int TN>
DEVICE void expert_tile(unsigned char *shared, bf16 *out, const bf16 *x, const bf16 *w, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	if (blockIdx.y >= *tile_count) return;
	const Pairs run = tiles[blockIdx.y];
	Tile::run(
	    shared, [&](int m) { return run.first + m < run.past ? x + (long long)(order[run.first + m] / each) * in : (const bf16 *)0; },
	    w + (long long)run.expert * rows * in, blockIdx.x * TN, rows, in,
	    [&](int m, int n, float a, float b) {
		    if (run.first + m < run.past) put(out, order[run.first + m], n, rows, a, b);
	    });
}

// For many pairs of each expert.
KERNEL(128) expert_gemm(bf16 *out, const bf16 *x, const bf16 *w, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert_tile<Gemm<64, 128, 32, 2, 2, 4>, 128>(shared, out, x, w, tile_count, tiles, order, each, rows, in);
}

// For few pairs of each: memory is what limits.
KERNEL(128) expert_gemm_16(bf16 *out, const bf16 *x, const bf16 *w, const int *tile_count, const Pairs *tiles, const int *order, int each, int rows, int in) {
	DYNAMIC_SHARED(shared);
	expert_tile<Gemm<16, 64, 64, 1, 4, 5>, 64>(shared, out, x, w, tile_count, tiles, order, each, rows, in);
}
