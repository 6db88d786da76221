// Where K and V lie in the pool: that of kvlayout.Shape.
#pragma once
#include "device.h"

const int MAX_HEAD_DIM = 256;

// A block has a region for each [head][layer][K, V]. Keys lie sixteen tokens side by side;
// values token by token, [token][dim]. tokens and head_dim are multiples of 16.
struct KVLayout {
	long long block_bytes;
	int layers, layer; // all, and that of the launch
	int heads, head_dim, tokens;
	int int8; // or else bf16
};

// Keys of bf16 have two dimensions side by side, [token / 16][dim / 2][token % 16][dim % 2].
struct KV16 {
	enum { BYTES = 2, INT8 = 0 };
	DEVICE long long region_bytes(const KVLayout &kv) { return (long long)kv.tokens * kv.head_dim * 2; }
};

// Those of int8 have one, [token / 16][dim][token % 16]. Behind the values of a region each
// token has a scale, float32.
struct KV8 {
	enum { BYTES = 1, INT8 = 1 };
	DEVICE long long region_bytes(const KVLayout &kv) { return (long long)kv.tokens * (kv.head_dim + 4); }
};

// The offset of a region in a block, in bytes; v is 0 for K and 1 for V.
template <class KV> DEVICE long long kv_region(const KVLayout &kv, int v, int head) {
	return (((long long)head * kv.layers + kv.layer) * 2 + v) * KV::region_bytes(kv);
}
