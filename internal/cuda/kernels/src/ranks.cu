// Sums over the ranks of a tensor-parallel group, which reach each other's memory.
#include "device.h"

const int MAX_RANKS = 8;

// Addresses in the memory of each rank.
struct Sums {
	bf16 *of[MAX_RANKS];
};
struct Parts {
	const float *of[MAX_RANKS];
};

// No load waits for another one, or for a sum: those from peers take long.
template <int ranks> DEVICE uint4 add_parts(const Parts &parts, long long i) {
	float4 v[ranks][2];
#pragma unroll
	for (int r = 0; r < ranks; r++) {
		const float4 *from = (const float4 *)parts.of[r] + 2 * i;
		v[r][0] = from[0], v[r][1] = from[1];
	}
	float4 a = v[0][0], b = v[0][1];
#pragma unroll
	for (int r = 1; r < ranks; r++) {
		a.x += v[r][0].x, a.y += v[r][0].y, a.z += v[r][0].z, a.w += v[r][0].w;
		b.x += v[r][1].x, b.y += v[r][1].y, b.z += v[r][1].z, b.w += v[r][1].w;
	}
	return make_uint4(pack2(a.x, a.y), pack2(a.z, a.w), pack2(b.x, b.y), pack2(b.z, b.w));
}

// Adds up the parts of all ranks, in their order, and stores the rounded sums in each of sums:
// for count groups of eight values from the group first on. There are at least two ranks.
KERNEL(256) sum_ranks(Sums sums, Parts parts, long long first, long long count, int stores, int ranks) {
	long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= count) return;
	i += first;
	uint4 sum;
	switch (ranks) {
	case 2: sum = add_parts<2>(parts, i); break;
	case 3: sum = add_parts<3>(parts, i); break;
	case 4: sum = add_parts<4>(parts, i); break;
	case 5: sum = add_parts<5>(parts, i); break;
	case 6: sum = add_parts<6>(parts, i); break;
	case 7: sum = add_parts<7>(parts, i); break;
	default: sum = add_parts<8>(parts, i);
	}
#pragma unroll
	for (int s = 0; s < MAX_RANKS; s++)
		if (s < stores) ((uint4 *)sums.of[s])[i] = sum;
}
