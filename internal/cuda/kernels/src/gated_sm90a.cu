// Products of weights with many rows of activations whose results gate one another, on the
// tensor cores of compute capability 9.0: what gemm and glu compute, without the memory between.
#include "activation.h"
#include "gemm_sm90a.h"

// out = act(x g^T + bias) * (x u^T + bias) for w of inner rows g and inner rows u: out is
// [tokens][inner], and bias has 2 * inner values or is null. A tile has 128 rows of each, so that a thread
// has both sums of its results. These are rounded before they meet, as gemm rounds them.
KERNEL_ALONE(384) gated_sm90a_128x256(MAP x, MAP w, bf16 *out, const bf16 *bias, int tokens, int inner, int in, int act, int group) {
	typedef WarpGroups<2, 1, 256, 4> Tile;
	const int half_tile = Tile::TN / 2;
	DYNAMIC_SHARED(shared);
	auto from = [&](int n, int i) { return n / 2 + (i < half_tile ? i : inner + i - half_tile); };
	Tile::run(shared, x, w, Tile::Order::make(group, tokens, 2 * inner), in, from, [&](int m, int n, auto &d) {
		const int lane = threadIdx.x % 32, first = m + threadIdx.x / 32 % 4 * 16 + lane / 4, pair = lane % 4 * 2;
		const int own = n / 2, blocks = half_tile / 8;
		if (bias)
#pragma unroll
			for (int j = 0; j < 2 * blocks; j++) {
				const int column = own + j % blocks * 8;
				if (column >= inner) continue;
				const unsigned b = *(const unsigned *)(bias + (j < blocks ? 0 : inner) + column + pair);
				d[j * 4] += low(b), d[j * 4 + 1] += high(b), d[j * 4 + 2] += low(b), d[j * 4 + 3] += high(b);
			}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int token = first + half * 8;
			const int end = token < tokens ? inner : 0;
			bf16 *to = out + (long long)token * inner + own;
#pragma unroll
			for (int j = 0; j < blocks; j += 4) {
				unsigned word[4];
#pragma unroll
				for (int i = 0; i < 4; i++) {
					const int gate = (j + i) * 4 + half * 2, up = gate + 4 * blocks;
					const unsigned g = pack2(d[gate], d[gate + 1]), u = pack2(d[up], d[up + 1]);
					word[i] = pack2(gated(low(g), low(u), act), gated(high(g), high(u), act));
				}
				transpose(word);
				const int column = (j + lane % 4) * 8;
				if (own + column < end) *(uint4 *)(to + column) = make_uint4(word[0], word[1], word[2], word[3]);
			}
		}
	});
}
