// Attention of one new token of each sequence to its paged KV, split over tokens.
#include "device.h"
#include "attention.h"

// Splits begin at multiples of this number of tokens, whatever else is in the batch.
const int SPLIT = 512, WARPS = 4;

struct Decode {
	bf16 *out;           // [sequence][query head][dim]
	float *partial;      // [sequence][query head][split][dim + 2]: weighted values, largest score, sum of weights
	const bf16 *q;       // [sequence][query head][dim]
	const unsigned char *pool;
	const int *tables;   // [sequence][table_blocks]
	const int *lengths;  // [sequence]: tokens that are in the cache, the new one included
	KVLayout kv;
	int table_blocks, query_heads, splits, window; // splits: that partial has room for; window 0: all
	Scores scores;
};

// The first token that the new one sees.
DEVICE int oldest(const Decode &d, int length) { return d.window > 0 ? max(0, length - d.window) : 0; }

// A block computes one split (x) of the queries that share a KV head (y), 16 at most, of a
// sequence (z). With one split it writes the result, else its part. It makes OUT dimensions
// of it: where registers do not suffice for all, several blocks share them. Heads have DIM
// dimensions, or at most so many.
template <int DIM, int OUT, bool FIXED = true, class KV = KV16> DEVICE void decode(const Decode &d, float *shared) {
	const int dim = FIXED ? DIM : d.kv.head_dim;
	const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const int group = d.query_heads / d.kv.heads, tiles = (group + 15) / 16;
	const int shares = (dim + OUT - 1) / OUT, share = blockIdx.y % shares, tile = blockIdx.y / shares;
	const int head = tile / tiles, first_row = tile % tiles * 16, rows = min(16, group - first_row);
	const int out_dim = FIXED ? OUT : min(OUT, dim - share * OUT);
	const int sequence = blockIdx.z, length = d.lengths[sequence];
	const int first_head = head * group + first_row;
	const long long first_q = (long long)sequence * d.query_heads + first_head;
	const int from = max(oldest(d, length), (int)blockIdx.x * SPLIT), to = min(length, ((int)blockIdx.x + 1) * SPLIT);
	if (from >= to && d.splits > 1) return; // nobody reads this part

	Rows<DIM, OUT, KV> r;
	begin(r, dim, [&](int row) { return row < rows ? d.q + (first_q + row) * dim : (const bf16 *)0; });
	const long long keys = kv_region<KV>(d.kv, 0, head), values = kv_region<KV>(d.kv, 1, head);
	// Where sixteen tokens of K or V begin; null when there are none to see.
	auto sixteen = [&](long long region, int token) {
		if (token >= to || token + 16 <= from) return (const uint4 *)0;
		const long long block = d.tables[(long long)sequence * d.table_blocks + token / d.kv.tokens];
		return (const uint4 *)(d.pool + block * d.kv.block_bytes + region + (long long)(token % d.kv.tokens) * dim * KV::BYTES);
	};
	const uint4 zero = {0, 0, 0, 0};
	for (int token = from / STEP * STEP + warp * STEP; token < to; token += WARPS * STEP) {
		const uint4 *k = sixteen(keys, token + g / 4 * 16), *v = sixteen(values, token + t / 2 * 16);
		// Behind the values of a region, its scales; K has them as far before those of V as its values.
		const int first = (token + t / 2 * 16) % d.kv.tokens;
		const unsigned char *scales = (const unsigned char *)v + (long long)(d.kv.tokens - first) * dim + first * 4;
		step(
		    r, d.scores, dim, out_dim,
		    [&](int pair) {
			    if (!KV::INT8) return k ? load_once(k + pair * 4 + g % 4) : zero;
			    const unsigned *bytes = (const unsigned *)k + pair_dim(pair) * 4 + g % 4;
			    return k ? pair_bytes(load_once(bytes), load_once(bytes + 4 * 4)) : zero;
		    },
		    [&](int i, int chunk) {
			    const bool there = v && token + i >= from && token + i < to && (FIXED || chunk * 8 < out_dim);
			    if (!KV::INT8) return there ? load_once(v + i % 16 * (dim / 8) + share * (OUT / 8) + chunk) : zero;
			    return there ? eight_bytes(load_once((const uint2 *)v + i % 16 * (dim / 8) + share * (OUT / 8) + chunk)) : zero;
		    },
		    [&](int row, int i) { return row < rows && token + i >= from && token + i < to; },
		    [&](int of_v, int c) {
			    if (!v) return make_float4(0, 0, 0, 0);
			    return *(const float4 *)(scales - (of_v ? 0 : values - keys) + (t % 2 * 2 + c) * 16);
		    });
	}

	// The warps' parts become one, in their order.
	float *tops = shared, *norms = tops + WARPS * 16, *out = norms + 16;
	if (t == 0) tops[warp * 16 + g] = r.top[0], tops[warp * 16 + g + 8] = r.top[1];
	__syncthreads();
	float top[2];
#pragma unroll
	for (int h = 0; h < 2; h++) {
		top[h] = NONE;
		for (int w = 0; w < WARPS; w++) top[h] = fmaxf(top[h], tops[w * 16 + g + h * 8]);
	}
	for (int w = 0; w < WARPS; w++) {
		if (w == warp) {
#pragma unroll
			for (int h = 0; h < 2; h++) {
				const float weight = r.top[h] == NONE ? 0 : exp2_fast(r.top[h] - top[h]);
				const int row = g + h * 8;
				if (t == 0) norms[row] = (w ? norms[row] : 0) + r.norm[h] * weight;
#pragma unroll
				for (int i = 0; i < OUT / 8; i++)
#pragma unroll
					for (int c = 0; c < 2; c++) {
						float *sum = &out[row * OUT + i / 8 * 64 + t * 16 + c * 8 + i % 8];
						*sum = (w ? *sum : 0) + r.out[i][h * 2 + c] * weight;
					}
			}
		}
		__syncthreads();
	}
	for (int i = threadIdx.x; i < rows * OUT; i += blockDim.x) {
		const int row = i / OUT, at = i % OUT + share * OUT;
		if (!FIXED && at >= dim) continue;
		if (d.splits == 1) {
			d.out[(first_q + row) * dim + at] = narrow(norms[row] > 0 ? out[i] / norms[row] : 0);
			continue;
		}
		float *part = d.partial + ((first_q + row) * d.splits + blockIdx.x) * (dim + 2);
		part[at] = out[i];
		if (at == 0) {
			part[dim + 1] = norms[row];
			float best = NONE;
			for (int w = 0; w < WARPS; w++) best = fmaxf(best, tops[w * 16 + row]);
			part[dim] = best;
		}
	}
}

KERNEL(128) decode_attention_64(Decode d) {
	__shared__ float shared[WARPS * 16 + 16 + 16 * 64];
	decode<64, 64>(d, shared);
}

KERNEL(128) decode_attention_128(Decode d) {
	__shared__ float shared[WARPS * 16 + 16 + 16 * 128];
	decode<128, 128>(d, shared);
}

KERNEL(128) decode_attention_256(Decode d) {
	__shared__ float shared[WARPS * 16 + 16 + 16 * 128];
	decode<256, 128>(d, shared);
}

// For all other numbers of dimensions up to 256, multiples of 16.
KERNEL(128) decode_attention_any(Decode d) {
	__shared__ float shared[WARPS * 16 + 16 + 16 * 128];
	decode<256, 128, false>(d, shared);
}

// For int8 and all numbers of dimensions up to 128.
KERNEL(128) decode_attention_i8(Decode d) {
	__shared__ float shared[WARPS * 16 + 16 + 16 * 128];
	decode<128, 128, false, KV8>(d, shared);
}

// Joins the splits of a query head (x) of a sequence (y), in their order; a thread for each
// dimension.
KERNEL(256) decode_attention_join(Decode d) {
	const int dim = d.kv.head_dim, length = d.lengths[blockIdx.y];
	const long long row = (long long)blockIdx.y * d.query_heads + blockIdx.x;
	if (threadIdx.x >= dim) return;
	const float *parts = d.partial + row * d.splits * (dim + 2);
	const int first = oldest(d, length) / SPLIT, past = (length + SPLIT - 1) / SPLIT;
	float top = NONE, sum = 0, norm = 0;
	for (int s = first; s < past; s++) top = fmaxf(top, parts[s * (dim + 2) + dim]);
	for (int s = first; s < past; s++) {
		const float *part = parts + s * (dim + 2);
		const float share = exp2_fast(part[dim] - top);
		sum += part[threadIdx.x] * share;
		norm += part[dim + 1] * share;
	}
	d.out[row * dim + threadIdx.x] = narrow(norm > 0 ? sum / norm : 0);
}
