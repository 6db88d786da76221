// Where K and V lie in the pool: that of engine.KVShape for bf16.
#pragma once
#include "device.h"

const int MAX_HEAD_DIM = 256;

// A block has a region for each [head][layer][K, V]. Keys lie sixteen tokens side by side,
// [token / 16][dim / 2][token % 16][dim % 2]; values token by token, [token][dim]. tokens and
// head_dim are multiples of 16.
struct KVLayout {
	long long block_bytes;
	int layers, layer; // all, and that of the launch
	int heads, head_dim, tokens;
	int unused;
};

// The offset of a region in a block, in bytes; v is 0 for K and 1 for V.
DEVICE long long kv_region(const KVLayout &kv, int v, int head) {
	return (((long long)head * kv.layers + kv.layer) * 2 + v) * ((long long)kv.tokens * kv.head_dim * 2);
}
