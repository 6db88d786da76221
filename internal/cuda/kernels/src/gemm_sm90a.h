// Tiles of products of weights with activations by TMA and wgmma.
#pragma once
#include "sm90a.h"

// Exchanges words among the four lanes of a row, so that word i of lane q becomes word q of lane i.
DEVICE void transpose(unsigned (&w)[4]) {
	const int q = threadIdx.x % 4;
#pragma unroll
	for (int by = 1; by < 4; by *= 2)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (i & by) continue;
			const bool upper = q & by;
			const unsigned got = __shfl_xor_sync(ALL_LANES, upper ? w[i] : w[i | by], by);
			if (upper) w[i] = got;
			else w[i | by] = got;
		}
}

// A block computes tiles of TM rows of x and TN rows of w, one after the other. Its first warp
// group copies: STAGES pieces of TK values of both are in shared memory. The others, WM x WN,
// multiply, each 64 rows of x with N rows of w.
template <int WM, int WN, int N, int STAGES> struct WarpGroups {
	enum {
		TM = WM * 64,
		TN = WN * N,
		TK = 64,
		THREADS = (1 + WM * WN) * 128,
		BOX = 64, // rows of a box, in both tensor maps
		ROW_BYTES = TK * 2,
		X_BYTES = TM * ROW_BYTES,
		STAGE_BYTES = X_BYTES + TN * ROW_BYTES,
		BARRIERS = STAGES * STAGE_BYTES, // where those of full stages lie, and then those of empty ones
	};

	// The registers of a multiprocessor, of which the copying group needs few.
	enum { COPYING = 40, MULTIPLYING = 232 };

	// The tiles of all blocks, in an order in which those that run together share rows: group
	// tiles of x with all of w, then the next.
	struct Order {
		int group, tiles_m, tiles_n;
		DEVICE Order make(int group, int tokens, int rows) { return {group, (tokens + TM - 1) / TM, (rows + TN - 1) / TN}; }
		// The first rows of a tile; false behind the last tile.
		DEVICE bool find(const Order &o, int tile, int &m, int &n) {
			if (tile >= o.tiles_m * o.tiles_n) return false;
			const int of_group = o.group * o.tiles_n, first = tile / of_group * o.group, rest = tile % of_group;
			const int size = min(o.group, o.tiles_m - first);
			m = (first + rest % size) * TM, n = rest / size * TN;
			return true;
		}
	};

	// Where the ring of stages is: a stage and how often the ring has come round.
	struct Ring {
		int stage;
		unsigned round;
		DEVICE void next(Ring &r) {
			if (++r.stage < STAGES) return;
			r.stage = 0, r.round ^= 1;
		}
	};

	// Computes all tiles. from(n, i) is the row of w that is row i of the tile at n; 64 rows from
	// a multiple of 64 on follow one another. store(m, n, d) gets the sums of the 64 rows m of x
	// with N rows of the tile from n on, as wgmma leaves them. Sums run over the values in order, 16 at a time.
	template <class From, class Store> DEVICE void run(unsigned char *shared, const TensorMap &x, const TensorMap &w, const Order &order, int in, From from, Store store) {
		const unsigned base = (shared_address(shared) + 1023) & ~1023u;
		const unsigned full = base + BARRIERS, empty = full + STAGES * 8;
		const int warp_group = __shfl_sync(ALL_LANES, (int)threadIdx.x / 128, 0), steps = (in + TK - 1) / TK;
		if (threadIdx.x == 0) {
			for (int s = 0; s < STAGES; s++) {
				barrier_init(full + s * 8, 1);
				barrier_init(empty + s * 8, WM * WN * 4); // the warps that multiply
			}
			barrier_publish();
		}
		__syncthreads();
		int m, n;
		Ring ring = {0, 0};
		if (warp_group == 0) {
			give_registers<COPYING>();
			if (threadIdx.x != 0) return;
			prefetch_map(x);
			prefetch_map(w);
			for (int tile = blockIdx.x; Order::find(order, tile, m, n); tile += gridDim.x)
				for (int step = 0; step < steps; step++, Ring::next(ring)) {
					const unsigned to = base + ring.stage * STAGE_BYTES, barrier = full + ring.stage * 8;
					barrier_wait(empty + ring.stage * 8, ring.round ^ 1);
					barrier_expect(barrier, STAGE_BYTES);
#pragma unroll
					for (int i = 0; i < TM; i += BOX) copy_box(to + i * ROW_BYTES, x, step * TK, m + i, barrier);
#pragma unroll
					for (int i = 0; i < TN; i += BOX) copy_box(to + X_BYTES + i * ROW_BYTES, w, step * TK, from(n, i), barrier);
				}
			return;
		}
		take_registers<MULTIPLYING>();
		const int self = warp_group - 1, own_m = self / WN * 64, own_n = self % WN * N;
		const bool speaks = threadIdx.x % 32 == 0; // for its warp
		for (int tile = blockIdx.x; Order::find(order, tile, m, n); tile += gridDim.x) {
			float d[N / 2] = {};
			unsigned used = 0; // the barrier of the stage before
			for (int step = 0; step < steps; step++, Ring::next(ring)) {
				const unsigned at = base + ring.stage * STAGE_BYTES;
				const unsigned long long a = descriptor(at + own_m * ROW_BYTES), b = descriptor(at + X_BYTES + own_n * ROW_BYTES);
				barrier_wait(full + ring.stage * 8, ring.round);
				wgmma_fence();
#pragma unroll
				for (int k = 0; k < TK / 16; k++) wgmma(d, a + 2 * k, b + 2 * k);
				wgmma_commit();
				wgmma_wait<1>(); // that of the stage before has ended
				if (used && speaks) barrier_arrive(used);
				used = empty + ring.stage * 8;
			}
			wgmma_finish(d);
			if (speaks) barrier_arrive(used);
			store(m + own_m, n + own_n, d);
		}
	}
};
