// Weights of eight bits. Each stands for a number that bf16 has exactly.
#pragma once
#include "device.h"

// Whole numbers with a scale, float16, for 32 of a row: those of ggml's Q8_0. Rows of
// scales have an even number of them.
struct Q8 {
	enum { BLOCKS = 1 };
	typedef unsigned short Scale;

	// Byte i of a word, by way of 2^23 + 128 plus it.
	DEVICE float value(unsigned w, int i) { return __uint_as_float(__byte_perm(w ^ 0x80808080u, 0x4b000000u, 0x7650 | i)) - 8388736.f; }

	// The four of a word as bf16.
	DEVICE uint2 pairs(unsigned w) {
		const unsigned a = __float_as_uint(value(w, 0)), b = __float_as_uint(value(w, 1)), c = __float_as_uint(value(w, 2)), d = __float_as_uint(value(w, 3));
		return make_uint2(__byte_perm(a, b, 0x7632), __byte_perm(c, d, 0x7632));
	}

	// How many scales a row has.
	DEVICE int scales(int in) { return (in / 32 + 1) / 2 * 2; }
	DEVICE int row_bytes(int in) { return scales(in) * 2; }

	// The scale of the i-th sixteen of a row.
	DEVICE float scale(const void *scales, int row, int in, int i) { return widen_half(((const unsigned short *)scales)[(long long)row * Q8::scales(in) + i / 2]); }

	// Where the word with the scales of the i-th 64 of a row is, how many bytes of it there are,
	// and the scale of a half in it.
	DEVICE long long word(int row, int in, int i) { return (long long)row * Q8::scales(in) + i * 2; }
	DEVICE int word_bytes(int in, int i) { return min(in / 32 - i * 2, 2) * 2; }
	DEVICE float half(unsigned word, int half) { return widen_half((unsigned short)(word >> half * 16)); }
};

// Floats of a sign, four bits of exponent and three of mantissa, with a scale, float32, for
// a row. Numbers that are none must not be among them.
struct E4M3 {
	enum { BLOCKS = 0 };
	typedef float Scale;

	DEVICE int row_bytes(int in) { return 4; }
	DEVICE float scale(const void *scales, int row, int in, int i) { return 1; }
	DEVICE long long word(int row, int in, int i) { return 0; }
	DEVICE int word_bytes(int in, int i) { return 0; }
	DEVICE float half(unsigned word, int half) { return 1; }

	// As a float whose exponent is 120 too small, which also holds for the smallest ones.
	DEVICE float value(unsigned w, int i) { return __uint_as_float((int)__byte_perm(w, 0, i << 12 | 0x444) >> 4 & 0x87f00000) * 0x1p120f; }

	DEVICE uint2 pairs(unsigned w) {
		const unsigned a = __byte_perm(w, 0, 0x1404), b = __byte_perm(w, 0, 0x3424), raise = 0x7b807b80; // 2^120, twice
		return make_uint2(multiply2(a >> 4 & 0x07f007f0 | a & 0x80008000, raise), multiply2(b >> 4 & 0x07f007f0 | b & 0x80008000, raise));
	}
};

// The same with a scale, float32, for 128 of a row: the last ones of a row may be fewer.
struct E4M3B : E4M3 {
	enum { BLOCKS = 1 };

	DEVICE int scales(int in) { return (in + 127) / 128; }
	DEVICE int row_bytes(int in) { return scales(in) * 4; }
	DEVICE float scale(const void *scales, int row, int in, int i) { return ((const float *)scales)[(long long)row * E4M3B::scales(in) + i / 8]; }
	DEVICE long long word(int row, int in, int i) { return (long long)row * E4M3B::scales(in) + i / 2; }
	DEVICE int word_bytes(int in, int i) { return 4; }
	DEVICE float half(unsigned word, int half) { return __uint_as_float(word); }
};
