// Gated activations.
#include "activation.h"

// out = act(gate) * up for the row of block y; in has gate, then up. act is 0 for SiLU, 1
// for GELU by tanh. inner is a multiple of 8. The product is rounded once.
KERNEL(256) glu(bf16 *out, const bf16 *in, int inner, int act) {
	const int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= inner / 8) return;
	const uint4 *row = (const uint4 *)(in + (long long)blockIdx.y * 2 * inner);
	Eight g = widen8(row[i]);
	const Eight u = widen8(row[inner / 8 + i]);
	for (int j = 0; j < 8; j++) g.v[j] = gated(g.v[j], u.v[j], act);
	((uint4 *)(out + (long long)blockIdx.y * inner))[i] = narrow8(g);
}
