// The choice of next tokens from logits.
#include "device.h"

// What a sequence asks for.
struct Sampling {
	unsigned long long seed;
	int position;      // of the token in the output: draws depend on it and the seed only
	int top_k;         // 0: all
	float temperature; // 0: the largest logit
	float top_p;       // outside of 0 to 1: all
	float min_p;
	float repetition, frequency, presence; // penalties; repetition 1 is none
	int mask;          // the one that says which tokens are allowed; negative: all
	int unused;
};

// A change of one logit. A row has one for each token at most.
struct Adjustment {
	int token;
	int count;  // how often the output has the token
	int listed; // whether the prompt or the output has it
	float bias;
};

// Changes one logit of a row: its bias, then the penalties.
DEVICE void adjust(float *row, int vocab, const Adjustment &a, const Sampling &p) {
	if (a.token < 0 || a.token >= vocab) return;
	float l = row[a.token] + a.bias;
	if (l >= -3.4028235e38f) { // else it is forbidden, or not a number
		if (a.listed) l = l > 0 ? l / p.repetition : l * p.repetition;
		if (a.count > 0) l -= p.frequency * a.count + p.presence;
		l = fminf(fmaxf(l, -3.4028235e38f), 3.4028235e38f);
	}
	row[a.token] = l;
}

const int THREADS = 512, WARPS = THREADS / 32;

DEVICE unsigned long long mix(unsigned long long x) {
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

// 64 bits that depend on seed and position only: the generator of the CPU engine.
DEVICE unsigned long long draw(unsigned long long seed, int position) {
	const unsigned long long p = (unsigned long long)position * 0xd1342543de82ef95ull + 0x2545f4914f6cdd1dull;
	return mix(mix(seed + 0x9e3779b97f4a7c15ull) ^ (p << 23 | p >> 41)) >> 11 << 11;
}

// Memory that the functions below share.
struct Scratch {
	unsigned long long bins[256];
	unsigned long long sums[WARPS];
	unsigned long long rest;
	unsigned prefix;
	int found;
};

// Weights are whole numbers, so that their sums do not depend on an order. All threads of
// the block call these functions, and get the same.

// The sum of the weights of all tokens.
template <class Weight> DEVICE unsigned long long total(Scratch &s, int vocab, Weight weight) {
	unsigned long long sum = 0;
#pragma unroll 2
	for (int i = threadIdx.x; i < vocab; i += THREADS) sum += weight(i);
	for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, lane);
	if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = sum;
	__syncthreads();
	sum = 0;
#pragma unroll 4
	for (int w = 0; w < WARPS; w++) sum += s.sums[w];
	__syncthreads();
	return sum;
}

// The first token at which the sum of weights, by rising ids, exceeds goal, which is below
// the total.
template <class Weight> DEVICE int find(Scratch &s, int vocab, unsigned long long goal, Weight weight) {
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int share = (vocab + WARPS - 1) / WARPS, begin = warp * share, end = min(vocab, begin + share);
	unsigned long long sum = 0;
#pragma unroll 2
	for (int i = begin + lane; i < end; i += 32) sum += weight(i);
	for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, other);
	if (lane == 0) s.sums[warp] = sum;
	__syncthreads();
	unsigned long long before = 0;
#pragma unroll 4
	for (int w = 0; w < warp; w++) before += s.sums[w];
	if (before <= goal && goal < before + sum) {
#pragma unroll 1
		for (int first = begin; first < end; first += 32) {
			const int i = first + lane;
			unsigned long long upto = i < end ? weight(i) : 0;
			const unsigned long long own = upto;
			for (int by = 1; by < 32; by *= 2) {
				const unsigned long long left = __shfl_up_sync(ALL_LANES, upto, by);
				if (lane >= by) upto += left;
			}
			if (before + upto - own <= goal && goal < before + upto) s.found = i;
			before += __shfl_sync(ALL_LANES, upto, 31);
			if (before > goal) break;
		}
	}
	__syncthreads();
	const int found = s.found;
	__syncthreads();
	return found;
}

// The most preferred tokens: those of greater order, and of that order up to an id.
struct Best {
	unsigned order;
	int last;
};

// The fewest of the most preferred tokens whose weights reach goal, which is at least 1 and
// at most the total. Equal tokens have equal weights.
template <class Order, class Weight> DEVICE Best reach(Scratch &s, int vocab, unsigned long long goal, Order order_of, Weight weight) {
	unsigned prefix = 0;
#pragma unroll 1
	for (int shift = 24; shift >= 0; shift -= 8) {
		for (int i = threadIdx.x; i < 256; i += THREADS) s.bins[i] = 0;
		__syncthreads();
#pragma unroll 2
		for (int i = threadIdx.x; i < vocab; i += THREADS) {
			const unsigned o = order_of(i);
			if (shift < 24 && o >> (shift + 8) != prefix) continue;
			const unsigned long long w = weight(i);
			if (w) atomicAdd(&s.bins[o >> shift & 255], w);
		}
		__syncthreads();
		if (threadIdx.x == 0) {
			int bin = 255;
			while (bin > 0 && s.bins[bin] < goal) goal -= s.bins[bin--];
			s.prefix = prefix << 8 | bin, s.rest = goal;
		}
		__syncthreads();
		prefix = s.prefix, goal = s.rest;
		__syncthreads();
	}
	return {prefix, find(s, vocab, goal - 1, [&](int i) { return order_of(i) == prefix ? weight(i) : 0ull; })};
}

// Chooses a token for the row of block x, among the first limit of vocab logits, after the
// adjustments from starts[x] to starts[x + 1] have changed these; without starts there are
// none. A mask has a bit for each token, in mask_words words of 32; a token without its bit
// is never chosen. The result is -1 where a logit is not a number, or none is finite.
//
// Temperature, min-p, top-k and top-p mean what they mean for the CPU engine, and the draw
// goes through the tokens that are left by their ids. Probabilities are relative to the
// best, in units of 2^-31.
KERNEL(512) sample(int *out, float *logits, const unsigned *masks, const Sampling *params, const Adjustment *adjustments, const int *starts, int vocab, int limit, int mask_words) {
	__shared__ Scratch s;
	float *row = logits + (long long)blockIdx.x * vocab;
	const Sampling p = params[blockIdx.x];
	if (starts) {
		const int end = starts[blockIdx.x + 1];
#pragma unroll 1
		for (int i = starts[blockIdx.x] + threadIdx.x; i < end; i += THREADS) adjust(row, vocab, adjustments[i], p);
		__syncthreads();
	}
	const unsigned *bits = p.mask >= 0 ? masks + (long long)p.mask * mask_words : 0;
	const float forbidden = __uint_as_float(0xff800000u);
	auto logit = [&](int i) { return !bits || bits[i / 32] >> i % 32 & 1 ? row[i] : forbidden; };

	// The best: the order of the logit, and the lowest id.
	unsigned long long best = 0;
	bool broken = false;
#pragma unroll 2
	for (int i = threadIdx.x; i < limit; i += THREADS) {
		const float l = logit(i);
		broken = broken || l != l;
		best = max(best, (unsigned long long)order(l) << 32 | (0xffffffffu - i));
	}
	if (broken) best = ~0ull; // an order that no number has
	for (int lane = 16; lane > 0; lane /= 2) best = max(best, __shfl_xor_sync(ALL_LANES, best, lane));
	if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32] = best;
	__syncthreads();
	best = 0;
#pragma unroll 4
	for (int w = 0; w < WARPS; w++) best = max(best, s.sums[w]);
	__syncthreads();
	const int top = 0xffffffffu - (unsigned)best;
	const float top_logit = best == ~0ull ? forbidden : logit(top);
	if (!(fabsf(top_logit) <= 3.4028235e38f) || p.temperature <= 0) {
		if (threadIdx.x == 0) out[blockIdx.x] = fabsf(top_logit) <= 3.4028235e38f ? top : -1;
		return;
	}

	const float scale = fminf(1.4426950408889634f / p.temperature, 1e30f);
	auto weight = [&](int i) {
		const float share = exp2_fast((logit(i) - top_logit) * scale);
		return share < p.min_p ? 0ull : (unsigned long long)(unsigned)(share * 2147483648.f + 0.5f);
	};
	auto order_of = [&](int i) { return order(logit(i)); };
	Best kept = {0, limit};
	auto keeps = [&](int i) {
		const unsigned o = order_of(i);
		return o > kept.order || o == kept.order && i <= kept.last;
	};
	if (p.top_k > 0 && p.top_k < limit) kept = reach(s, limit, p.top_k, order_of, [](int) { return 1ull; });
	auto kept_weight = [&](int i) { return keeps(i) ? weight(i) : 0ull; };
	unsigned long long sum = total(s, limit, kept_weight);
	if (p.top_p > 0 && p.top_p < 1) {
		const unsigned long long goal = max(1ull, (unsigned long long)ceil((double)p.top_p * (double)sum));
		const Best nucleus = reach(s, limit, goal, order_of, kept_weight);
		kept = nucleus;
		sum = total(s, limit, kept_weight);
	}
	const int token = find(s, limit, __umul64hi(draw(p.seed, p.position), sum), kept_weight);
	if (threadIdx.x == 0) out[blockIdx.x] = token;
}
