// Experts: the choice for each token, the order in which they are computed, and the sum of
// what they give.
#include "device.h"
#include "experts.h"

const int WARPS = 8, THREADS = WARPS * 32;

// Chooses the experts of a token by its logits, a warp for each token: those with the largest
// ones, among equals the first, and what is not a number last. Shares are those of the
// softmax over all experts; with normalize they add up to one. active is at most 32.
KERNEL(256) route(int *experts, float *shares, const float *logits, int tokens, int count, int active, int normalize) {
	const int lane = threadIdx.x % 32, token = blockIdx.x * WARPS + threadIdx.x / 32;
	if (token >= tokens) return; // no barrier of the block below
	const float *row = logits + (long long)token * count;
	// Preferences are different numbers. Each round takes the largest below the last one.
	unsigned long long last = ~0ull;
	int first = 0, own = 0; // the best expert, and that of the lane's rank
#pragma unroll 1
	for (int rank = 0; rank < active; rank++) {
		unsigned long long best = 0;
#pragma unroll 2
		for (int e = lane; e < count; e += 32) {
			const float v = row[e];
			const unsigned long long p = (unsigned long long)(v == v ? order(v) : 0) << 32 | (0xffffffffu - e);
			if (p < last) best = max(best, p);
		}
		for (int other = 16; other > 0; other /= 2) best = max(best, __shfl_xor_sync(ALL_LANES, best, other));
		last = best;
		const int expert = 0xffffffffu - (unsigned)best;
		if (rank == 0) first = expert;
		if (rank == lane) own = expert;
	}
	const float top = row[first];
	float sum = 0;
#pragma unroll 2
	for (int e = lane; e < count; e += 32) sum += expf(row[e] - top);
	float share = expf(row[own] - top) / warp_sum(sum);
	if (normalize) share /= warp_sum(lane < active ? share : 0);
	if (lane < active) {
		experts[(long long)token * active + lane] = own;
		shares[(long long)token * active + lane] = share;
	}
}

// Sorts pairs by expert, and those of an expert by token: a block for each expert. order gets
// the pairs. tiles gets, for each expert in turn, runs of at most tile of its pairs, and
// tile_count how many they are.
KERNEL(256) plan_experts(int *tile_count, Pairs *tiles, int *order, const int *experts, int pairs, int count, int tile) {
	__shared__ int counts[MAX_EXPERTS], matches[WARPS], scratch[WARPS];
	const int own = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	for (int e = threadIdx.x; e < count; e += THREADS) counts[e] = 0;
	__syncthreads();
	// A warp takes pairs that follow each other, so that the expert's are in order.
	const int share = (pairs + WARPS - 1) / WARPS, begin = min(pairs, warp * share), end = min(pairs, begin + share);
	int mine = 0;
	for (int i = begin + lane; i < end; i += 32) {
		const int e = experts[i];
		atomicAdd(&counts[e], 1); // whole numbers: the sum does not depend on the order
		mine += e == own;
	}
	mine = warp_sum(mine);
	if (lane == 0) matches[warp] = mine;
	__syncthreads();
	const int total = counts[own], total_tiles = (total + tile - 1) / tile;
	int first = 0, first_tile = 0; // those of the experts before
	for (int e = threadIdx.x; e < own; e += THREADS) {
		first += counts[e];
		first_tile += (counts[e] + tile - 1) / tile;
	}
	first = block_sum(first, scratch), first_tile = block_sum(first_tile, scratch);
	if (own == count - 1 && threadIdx.x == 0) *tile_count = first_tile + total_tiles;
	for (int i = threadIdx.x; i < total_tiles; i += THREADS) {
		const Pairs run = {own, first + i * tile, min(first + (i + 1) * tile, first + total), 0};
		tiles[first_tile + i] = run;
	}
	int at = first;
	for (int w = 0; w < warp; w++) at += matches[w];
	for (int from = begin; from < end; from += 32) {
		const int i = from + lane;
		const bool is = i < end && experts[i] == own;
		const unsigned all = __ballot_sync(ALL_LANES, is);
		if (is) order[at + __popc(all & ((1u << lane) - 1))] = i;
		at += __popc(all);
	}
}

// out = the sum of a token's rows of x, [token][active][hidden], by their shares, in the order
// of rank. Block y is the token, x a part of hidden, which is a multiple of 8. The sum is
// rounded to bf16 once, or left in float32 with wide.
KERNEL(128) combine_experts(void *out, const bf16 *x, const float *shares, int active, int hidden, int wide) {
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= hidden / 8) return;
	const long long token = blockIdx.y;
	Eight sum = {};
	for (int rank = 0; rank < active; rank++) {
		const float share = shares[token * active + rank];
		const Eight v = widen8(((const uint4 *)(x + (token * active + rank) * hidden))[i]);
#pragma unroll
		for (int j = 0; j < 8; j++) sum.v[j] += share * v.v[j];
	}
	if (wide) {
		float4 *to = (float4 *)((float *)out + token * hidden) + 2 * i;
		to[0] = make_float4(sum.v[0], sum.v[1], sum.v[2], sum.v[3]);
		to[1] = make_float4(sum.v[4], sum.v[5], sum.v[6], sum.v[7]);
	} else {
		((uint4 *)((bf16 *)out + token * hidden))[i] = narrow8(sum);
	}
}
