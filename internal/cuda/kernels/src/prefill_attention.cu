// Attention of many new tokens of each sequence to its paged KV.
#include "device.h"
#include "attention.h"

const int WARPS = 4, TILE_ROWS = WARPS * 16;

struct Prefill {
	bf16 *out;           // [token][query head][dim]
	const bf16 *q;       // [token][query head][dim]: the new tokens of all sequences
	const unsigned char *pool;
	const int *tables;   // [sequence][table_blocks]
	const int *starts;   // [sequence + 1]: where its new tokens begin
	const int *lengths;  // [sequence]: tokens that are in the cache, the new ones included
	KVLayout kv;
	int table_blocks, query_heads, window, unused; // window 0: all
	Scores scores;
};

// Where a tile of V in shared memory has 16 bytes, with room for width chunks in a row, a
// multiple of 8: chunks are exchanged so that the four rows that a quarter of a warp reads lie
// in different banks.
DEVICE int value_at(int token, int chunk, int width) { return token * width + (chunk ^ token / 8 % 4 * 2); }

// A block computes 64 rows (x) of a KV head (y) of a sequence (z). A row is a query head of
// a token: rows of the heads that share the KV head follow each other. Keys and values come
// to shared memory 32 tokens at a time, while those before are computed with. Heads have DIM
// dimensions, or at most so many.
template <int DIM, bool FIXED = true, class KV = KV16> DEVICE void prefill(const Prefill &d, unsigned char *shared) {
	const int dim = FIXED ? DIM : d.kv.head_dim, row_bytes = dim * KV::BYTES, width = FIXED ? DIM / 16 * KV::BYTES : (row_bytes + 127) / 128 * 8;
	const int sequence = blockIdx.z, head = blockIdx.y, group = d.query_heads / d.kv.heads;
	const int start = d.starts[sequence], tokens = d.starts[sequence + 1] - start, length = d.lengths[sequence];
	const int first_row = blockIdx.x * TILE_ROWS, rows = min(TILE_ROWS, tokens * group - first_row);
	if (rows <= 0) return;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const int position = length - tokens; // of the first new token
	const int last = position + (first_row + rows - 1) / group, first = position + first_row / group;
	const int from = d.window > 0 ? max(0, first - d.window + 1) : 0, to = last + 1;

	auto query = [&](int row) { return ((long long)(start + row / group) * d.query_heads + head * group + row % group) * dim; };
	Rows<DIM, DIM, KV> r;
	begin(r, dim, [&](int row) { return warp * 16 + row < rows ? d.q + query(first_row + warp * 16 + row) : (const bf16 *)0; });

	// 16 bytes that a tile of K or V has room for, and a stage: both, and of int8 their scales.
	const int room = STEP * width, stage_room = 2 * room + (KV::INT8 ? 2 * STEP / 4 : 0);
	const long long keys = kv_region<KV>(d.kv, 0, head), values = kv_region<KV>(d.kv, 1, head);
	const unsigned base = shared_address(shared);
	auto fetch = [&](int token, int stage) {
		for (int i = threadIdx.x; token < to && i < STEP * row_bytes / 16; i += WARPS * 32) {
			// Both tiles have sixteen tokens in a row, of row_bytes chunks.
			const int half = i / row_bytes, at = i % row_bytes, first_token = token + half * 16;
			const int v_token = half * 16 + at / (row_bytes / 16);
			const bool there = first_token < to && first_token + 16 > from, v_there = token + v_token >= from && token + v_token < to;
			const uint4 *k = (const uint4 *)d.pool, *v = k;
			if (there) {
				const long long block = d.tables[(long long)sequence * d.table_blocks + first_token / d.kv.tokens];
				const unsigned char *in = d.pool + block * d.kv.block_bytes + (long long)(first_token % d.kv.tokens) * row_bytes;
				k = (const uint4 *)(in + keys) + at, v = (const uint4 *)(in + values) + at;
			}
			// Lanes read single words of two groups of int8: those are in different banks.
			const unsigned to_k = base + (stage * stage_room + (KV::INT8 ? i ^ half * 4 : i)) * 16;
			copy_async(to_k, k, there ? 16 : 0);
			copy_async(base + (stage * stage_room + room + value_at(v_token, at % (row_bytes / 16), width)) * 16, v, v_there ? 16 : 0);
		}
		if (KV::INT8 && token < to && threadIdx.x < 2 * STEP / 4) {
			const int v = threadIdx.x / (STEP / 4), at = threadIdx.x % (STEP / 4) * 4, first_token = (token + at) / 16 * 16;
			const bool there = first_token < to && first_token + 16 > from;
			const unsigned char *in = d.pool;
			if (there) {
				const long long block = d.tables[(long long)sequence * d.table_blocks + first_token / d.kv.tokens];
				in += block * d.kv.block_bytes + (v ? values : keys) + (long long)d.kv.tokens * dim + (token + at) % d.kv.tokens * 4;
			}
			copy_async(base + (stage * stage_room + 2 * room + threadIdx.x) * 16, in, there ? 16 : 0);
		}
		copy_commit();
	};
	const int begins = from / STEP * STEP;
	if (!FIXED) { // what lies behind a head's dimensions, no copy writes
		for (int i = threadIdx.x; i < 2 * stage_room; i += WARPS * 32) ((uint4 *)shared)[i] = make_uint4(0, 0, 0, 0);
		__syncthreads();
	}
	fetch(begins, 0);
	for (int token = begins, stage = 0; token < to; token += STEP, stage ^= 1) {
		fetch(token + STEP, stage ^ 1);
		copy_wait<1>();
		__syncthreads();
		const uint4 *k = (const uint4 *)shared + stage * stage_room, *v = k + room;
		step(
		    r, d.scores, dim, dim,
		    [&](int pair) {
			    if (!KV::INT8) return k[g / 4 * (dim * 2) + pair * 4 + g % 4];
			    const unsigned *bytes = (const unsigned *)(k + g / 4 * dim) + g % 4;
			    const int at = pair_dim(pair) ^ g / 4 * 4;
			    return pair_bytes(bytes[at * 4], bytes[(at ^ 4) * 4]);
		    },
		    [&](int i, int chunk) {
			    if (!KV::INT8) return v[value_at(i, chunk, width)];
			    return eight_bytes(((const uint2 *)(v + value_at(i, chunk / 2, width)))[chunk % 2]);
		    },
		    [&](int row, int i) {
			    const int own = warp * 16 + row, at = position + (first_row + own) / group;
			    return own < rows && token + i <= at && (d.window <= 0 || token + i > at - d.window);
		    },
		    [&](int of_v, int c) { return ((const float4 *)(v + room))[of_v * (STEP / 4) + t / 2 * 4 + t % 2 * 2 + c]; });
		__syncthreads(); // before the stage is filled again
	}
	copy_wait<0>();

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int row = warp * 16 + g + h * 8;
		if (row >= rows) continue;
		const float scale = r.norm[h] > 0 ? 1 / r.norm[h] : 0;
		bf16 *to_row = d.out + query(first_row + row);
#pragma unroll
		for (int i = 0; i < DIM / 8; i += 2)
#pragma unroll
			for (int c = 0; c < 2; c++) {
				if (FIXED || i / 8 * 64 + t * 16 + c * 8 < dim) *(unsigned *)(to_row + i / 8 * 64 + t * 16 + c * 8 + i % 8) = pack2(r.out[i][h * 2 + c] * scale, r.out[i + 1][h * 2 + c] * scale);
			}
	}
}

KERNEL(128) prefill_attention_64(Prefill d) {
	DYNAMIC_SHARED(shared);
	prefill<64>(d, shared);
}

KERNEL(128) prefill_attention_128(Prefill d) {
	DYNAMIC_SHARED(shared);
	prefill<128>(d, shared);
}

KERNEL(128) prefill_attention_256(Prefill d) {
	DYNAMIC_SHARED(shared);
	prefill<256>(d, shared);
}

// For all other numbers of dimensions up to 256, multiples of 16.
KERNEL(128) prefill_attention_any(Prefill d) {
	DYNAMIC_SHARED(shared);
	prefill<256, false>(d, shared);
}

// For int8 and all numbers of dimensions up to 128.
KERNEL(128) prefill_attention_i8(Prefill d) {
	DYNAMIC_SHARED(shared);
	prefill<128, false, KV8>(d, shared);
}
