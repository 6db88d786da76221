// From the product of the qkv matrix to queries and the KV cache.
#include "device.h"
#include "kv.h"

// One warp for each head of the token of block x: query heads, then those of K, then those
// of V. Queries and keys are normalized by their weights where there are any, their first
// rotary values are rotated in halves by the token's position, and queries go to q, keys
// and values to the token's slot of the pool, which is block * tokens + token; a negative
// slot has no memory. Results are rounded once; those of int8 to 127ths of the largest one,
// which is their scale: no number where one of them is none. cosines and sines are [position][rotary / 2].
KERNEL(128) rope_append(bf16 *q, unsigned char *pool, const bf16 *qkv, const bf16 *q_weight, const bf16 *k_weight, const float *cosines,
                        const float *sines, const int *positions, const int *slots, KVLayout kv, int query_heads, int rotary, float eps, float offset) {
	__shared__ float heads[4][MAX_HEAD_DIM];
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int head = blockIdx.y * 4 + warp, total = query_heads + 2 * kv.heads;
	if (head >= total) return; // no barrier of the block below
	const int dim = kv.head_dim, token = blockIdx.x;
	const bool is_q = head < query_heads, is_k = !is_q && head < query_heads + kv.heads;
	const unsigned *from = (const unsigned *)(qkv + ((long long)token * total + head) * dim);
	float *x = heads[warp];

	float squares = 0;
	for (int i = lane; i < dim / 2; i += 32) {
		const unsigned w = from[i];
		x[2 * i] = low(w), x[2 * i + 1] = high(w);
		squares += low(w) * low(w) + high(w) * high(w);
	}
	const bf16 *weight = is_q ? q_weight : is_k ? k_weight : 0;
	if (weight) {
		const float scale = rsqrtf(warp_sum(squares) / dim + eps);
		for (int i = lane; i < dim / 2; i += 32) {
			const unsigned w = ((const unsigned *)weight)[i];
			x[2 * i] *= scale * (low(w) + offset), x[2 * i + 1] *= scale * (high(w) + offset);
		}
	}
	__syncwarp();
	if (is_q || is_k) {
		const long long at = (long long)positions[token] * (rotary / 2);
		for (int i = lane; i < rotary / 2; i += 32) {
			const float c = cosines[at + i], s = sines[at + i], a = x[i], b = x[i + rotary / 2];
			x[i] = a * c - b * s, x[i + rotary / 2] = b * c + a * s;
		}
		__syncwarp();
	}

	if (is_q) {
		unsigned *to = (unsigned *)(q + ((long long)token * query_heads + head) * dim);
		for (int i = lane; i < dim / 2; i += 32) to[i] = pack2(x[2 * i], x[2 * i + 1]);
		return;
	}
	const int slot = slots[token];
	if (slot < 0) return;
	unsigned char *block = pool + (long long)(slot / kv.tokens) * kv.block_bytes;
	const int at = slot % kv.tokens;
	if (kv.int8) {
		unsigned char *to = block + kv_region<KV8>(kv, !is_k, head - query_heads - (is_k ? 0 : kv.heads));
		unsigned most = 0;
		for (int i = lane; i < dim; i += 32) most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
		const float top = __uint_as_float(warp_max(most));
		const bool broken = !(top <= 0x1.fffffep127f);
		float factor = 127 / top;
		if (!(factor <= 0x1.fffffep127f)) factor = 0;
		if (lane == 0) ((float *)(to + kv.tokens * dim))[at] = broken ? __uint_as_float(0x7fc00000u) : factor == 0 ? 0 : top / 127;
		if (broken) factor = 0;
		for (int i = lane; i < dim; i += 32) to[is_k ? (at / 16 * dim + i) * 16 + at % 16 : at * dim + i] = (unsigned char)(factor == 0 ? 0 : round_even(x[i] * factor));
		return;
	}
	if (is_k) {
		unsigned *to = (unsigned *)(block + kv_region<KV16>(kv, 0, head - query_heads)) + at / 16 * 16 * (dim / 2) + at % 16;
		for (int i = lane; i < dim / 2; i += 32) to[i * 16] = pack2(x[2 * i], x[2 * i + 1]);
	} else {
		unsigned *to = (unsigned *)(block + kv_region<KV16>(kv, 1, head - query_heads - kv.heads)) + at * (dim / 2);
		for (int i = lane; i < dim / 2; i += 32) to[i] = pack2(x[2 * i], x[2 * i + 1]);
	}
}
