// Root mean square norms of rows.
#include "device.h"

// out = x / rms(x) * (weight + offset) for the row of block x. With residual, x is added to
// it first, and the sum, rounded, is what is normalized. The result is rounded once. hidden
// is a multiple of 8; out may be x.
KERNEL(256) rms_norm(bf16 *out, bf16 *residual, const bf16 *x, const bf16 *weight, int hidden, float eps, float offset) {
	__shared__ float scratch[8];
	const long long row = (long long)blockIdx.x * hidden;
	const uint4 *from = (const uint4 *)(x + row);
	float squares = 0;
	for (int i = threadIdx.x; i < hidden / 8; i += blockDim.x) {
		Eight v = widen8(from[i]);
		if (residual) {
			uint4 *sum = (uint4 *)(residual + row) + i;
			Eight r = widen8(*sum);
			for (int j = 0; j < 8; j++) r.v[j] += v.v[j];
			*sum = narrow8(r);
			v = widen8(*sum);
		}
		for (int j = 0; j < 8; j++) squares += v.v[j] * v.v[j];
	}
	const float scale = rsqrtf(block_sum(squares, scratch) / hidden + eps);
	if (residual) from = (const uint4 *)(residual + row); // each thread reads what it wrote
	for (int i = threadIdx.x; i < hidden / 8; i += blockDim.x) {
		Eight v = widen8(from[i]);
		const Eight w = widen8(((const uint4 *)weight)[i]);
		for (int j = 0; j < 8; j++) v.v[j] = v.v[j] * scale * (w.v[j] + offset);
		((uint4 *)(out + row))[i] = narrow8(v);
	}
}
