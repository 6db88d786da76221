package bench

import "github.com/dynctl/dynctl/internal/model"

// The published figures of llama.cpp (September 2026, native build with AMX, flash
// attention, KV in f16) and ik_llama.cpp (August 2026, native), the better of both, on
// random models of the same shapes. They were measured on another machine: two cores of a
// Xeon of the Sapphire Rapids generation with AVX-512 and AMX.

// peerMachine holds that machine's limits by number of threads: bytes read per second,
// and operations of its bf16 tiles per second.
var peerMachine = map[int]struct{ read, tiles float64 }{
	1: {15.9e9, 3.84e12},
	2: {30.7e9, 7.7e12},
}

const peerAbout = "The best published figure of llama.cpp and ik_llama.cpp is a constant, measured on another\n" +
	"machine: two cores of a Xeon that read 30.7 GB/s and multiply 7.7 TFLOP/s of bf16 in AMX\n" +
	"tiles (one: 15.9 GB/s, 3.84 TFLOP/s). Compare shares of limits, not speeds."

// peerKV returns the bytes that these programs store for a position, in f16.
func peerKV(c model.Config) float64 { return float64(2 * c.Layers * c.KVHeads * c.HeadDim * 2) }

type peerKey struct{ shape, format, kind string }

// peerRates holds tokens per second with one and with two threads; 0 if not published.
var peerRates = map[peerKey][2]float64{
	{"qwen3-0.6b", "q8_0", kindPrefill + "-128"}:    {0, 427},
	{"qwen3-0.6b", "q8_0", kindPrefill + "-512"}:    {210, 373},
	{"qwen3-0.6b", "q8_0", kindPrefill + "-2048"}:   {0, 266},
	{"qwen3-0.6b", "q4_0", kindPrefill + "-128"}:    {0, 413},
	{"qwen3-0.6b", "q4_0", kindPrefill + "-512"}:    {184, 362},
	{"qwen3-0.6b", "q4_0", kindPrefill + "-2048"}:   {0, 243},
	{"qwen3-0.6b", "bf16", kindPrefill + "-128"}:    {0, 160},
	{"qwen3-0.6b", "bf16", kindPrefill + "-512"}:    {88, 172},
	{"qwen3-0.6b", "bf16", kindPrefill + "-2048"}:   {0, 134},
	{"llama-3.2-1b", "q8_0", kindPrefill + "-128"}:  {0, 245},
	{"llama-3.2-1b", "q8_0", kindPrefill + "-512"}:  {126, 232},
	{"llama-3.2-1b", "q8_0", kindPrefill + "-2048"}: {0, 179},
	{"llama-3.2-1b", "q4_0", kindPrefill + "-128"}:  {0, 230},
	{"llama-3.2-1b", "q4_0", kindPrefill + "-512"}:  {108, 225},
	{"llama-3.2-1b", "q4_0", kindPrefill + "-2048"}: {0, 167},
	{"llama-3.2-1b", "bf16", kindPrefill + "-128"}:  {0, 91},
	{"llama-3.2-1b", "bf16", kindPrefill + "-512"}:  {49, 92},
	{"llama-3.2-1b", "bf16", kindPrefill + "-2048"}: {0, 81},

	{"qwen3-0.6b", "q8_0", kindDecode}:             {21.7, 39.3},
	{"qwen3-0.6b", "q8_0", kindDecode + "-2048"}:   {0, 16.6},
	{"qwen3-0.6b", "q8_0", kindDecode + "-x16"}:    {0, 249},
	{"qwen3-0.6b", "q4_0", kindDecode}:             {39.3, 67.9},
	{"qwen3-0.6b", "q4_0", kindDecode + "-2048"}:   {0, 18.6},
	{"qwen3-0.6b", "q4_0", kindDecode + "-x16"}:    {0, 237},
	{"qwen3-0.6b", "bf16", kindDecode}:             {10.8, 20.2},
	{"qwen3-0.6b", "bf16", kindDecode + "-2048"}:   {0, 13.8},
	{"qwen3-0.6b", "bf16", kindDecode + "-x16"}:    {0, 89},
	{"llama-3.2-1b", "q8_0", kindDecode}:           {10.6, 19.8},
	{"llama-3.2-1b", "q8_0", kindDecode + "-2048"}: {0, 14.4},
	{"llama-3.2-1b", "q8_0", kindDecode + "-x16"}:  {0, 107},
	{"llama-3.2-1b", "q4_0", kindDecode}:           {18.6, 34.7},
	{"llama-3.2-1b", "q4_0", kindDecode + "-2048"}: {0, 17.3},
	{"llama-3.2-1b", "q4_0", kindDecode + "-x16"}:  {0, 105},
	{"llama-3.2-1b", "bf16", kindDecode}:           {6.0, 11.3},
	{"llama-3.2-1b", "bf16", kindDecode + "-2048"}: {0, 10.3},
	{"llama-3.2-1b", "bf16", kindDecode + "-x16"}:  {0, 50},
}

// peerStarts holds the seconds from exec to the first token of a prompt of 128 tokens,
// for llama.cpp's server with two threads and its files in the page cache.
var peerStarts = map[peerKey]float64{
	{"qwen3-0.6b", "q8_0", kindStart}: 2.0, {"qwen3-0.6b", "bf16", kindStart}: 2.3, {"qwen3-0.6b", "q4_0", kindStart}: 1.9,
	{"llama-3.2-1b", "q8_0", kindStart}: 2.2, {"llama-3.2-1b", "bf16", kindStart}: 2.6, {"llama-3.2-1b", "q4_0", kindStart}: 2.2,
}

// peerRate returns a published figure. ok is false if there is none for that many
// threads.
func peerRate(k peerKey, threads int) (float64, bool) {
	if threads != 1 && threads != 2 {
		return 0, false
	}
	v := peerRates[k][threads-1]
	return v, v > 0
}
