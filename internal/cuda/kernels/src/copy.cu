// Copies of many pieces of memory, such as blocks of a KV pool.
#include "device.h"

const int PART = 64 << 10; // bytes that a block copies

// Copies a part (x) of a piece (y) of the given number of bytes, a multiple of 16. Offsets
// are in bytes. Pieces do not overlap.
KERNEL(256) copy_pieces(unsigned char *to, const unsigned char *from, const long long *to_offsets, const long long *from_offsets, long long bytes) {
	const long long begin = (long long)blockIdx.x * PART, end = min(bytes, begin + PART);
	const uint4 *source = (const uint4 *)(from + from_offsets[blockIdx.y]);
	uint4 *target = (uint4 *)(to + to_offsets[blockIdx.y]);
#pragma unroll 4
	for (long long i = begin / 16 + threadIdx.x; i < end / 16; i += blockDim.x) target[i] = load_once(source + i);
}
