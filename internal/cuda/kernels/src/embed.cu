// Rows of the embedding table.
#include "device.h"

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
