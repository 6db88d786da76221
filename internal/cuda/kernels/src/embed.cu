// Rows of the embedding table.
#include "device.h"
#include "weights.h"

// out[t] = table[ids[t]] * scale for the token t of block x. Ids that the table does not
// have give zeros. hidden is a multiple of 8.
KERNEL(128) embed(bf16 *out, const bf16 *table, const int *ids, int hidden, int rows, float scale) {
	const int id = ids[blockIdx.x];
	uint4 *to = (uint4 *)(out + (long long)blockIdx.x * hidden);
	const uint4 *from = (const uint4 *)(table + (long long)id * hidden);
	for (int i = threadIdx.x; i < hidden / 8; i += blockDim.x) {
		uint4 w = make_uint4(0, 0, 0, 0);
		if (id >= 0 && id < rows) {
			w = from[i];
			if (scale != 1) {
				Eight x = widen8(w);
				for (int j = 0; j < 8; j++) x.v[j] *= scale;
				w = narrow8(x);
			}
		}
		to[i] = w;
	}
}

// As embed for a table of Q8. hidden is a multiple of 32.
KERNEL(128) embed_q8(bf16 *out, const unsigned char *table, const unsigned short *scales, const int *ids, int hidden, int rows, float scale) {
	const int id = ids[blockIdx.x];
	const bool there = id >= 0 && id < rows;
	uint4 *to = (uint4 *)(out + (long long)blockIdx.x * hidden);
	const uint2 *from = (const uint2 *)(table + (long long)(there ? id : 0) * hidden);
	const unsigned short *row = scales + (long long)(there ? id : 0) * Q8::scales(hidden);
	for (int i = threadIdx.x; i < hidden / 8; i += blockDim.x) {
		Eight x = {};
		if (there) {
			const uint2 w = from[i];
			const float by = widen_half(row[i / 4]) * scale;
#pragma unroll
			for (int j = 0; j < 8; j++) x.v[j] = Q8::value(j < 4 ? w.x : w.y, j % 4) * by;
		}
		to[i] = narrow8(x);
	}
}
