// Dot products of weights with few rows of activations: what all types of weights share.
#pragma once
#include "device.h"

const int GEMV_ROWS = 2; // outputs of a warp

// The first of the warp's outputs.
DEVICE int gemv_first() { return (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * GEMV_ROWS; }

// Stores the warp's sums, which all lanes have, with their biases: rounded, or as they are
// with wide.
template <int M> DEVICE void put_dots(void *out, const bf16 *bias, const float (&sums)[GEMV_ROWS][M], int first, int tokens, int rows, int wide) {
	if (threadIdx.x % 32) return;
#pragma unroll
	for (int r = 0; r < GEMV_ROWS; r++) {
		if (first + r >= rows) break;
		const float b = bias ? widen(bias[first + r]) : 0;
#pragma unroll
		for (int t = 0; t < M; t++) {
			if (t >= tokens) break;
			const long long at = (long long)t * rows + first + r;
			if (wide)
				((float *)out)[at] = sums[r][t] + b;
			else
				((bf16 *)out)[at] = narrow(sums[r][t] + b);
		}
	}
}
