package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

// block makes 32 weights: the given ones, and zeros.
func block(at map[int]float32) []float32 {
	out := make([]float32, 32)
	for i, v := range at {
		out[i] = v
	}
	return out
}

// levels makes the bytes of a block of Q8_0.
func levels(scale uint16, at map[int]int8) []byte {
	out := make([]byte, 34)
	binary.LittleEndian.PutUint16(out, scale)
	for i, q := range at {
		out[2+i] = byte(q)
	}
	return out
}

// nibbles makes the bytes of a block of Q4_0 whose other weights are level 8, zero.
func nibbles(scale uint16, at map[int]byte) []byte {
	out := make([]byte, 18)
	binary.LittleEndian.PutUint16(out, scale)
	for i := range 32 {
		q, ok := at[i]
		if !ok {
			q = 8
		}
		out[2+i%16] |= q << (4 * (i / 16))
	}
	return out
}

// TestQuantizeByHand has blocks that were worked out on paper from ggml's rule.
func TestQuantizeByHand(t *testing.T) {
	tests := []struct {
		name string
		kind gguf.Type
		src  []float32
		want []byte
	}{
		{"zeros", gguf.Q8_0, block(nil), levels(0, nil)},
		// 127 / 127 is 1: levels are the weights, halves go away from zero.
		{"scale one", gguf.Q8_0, block(map[int]float32{0: 127, 1: -3, 2: 0.5, 3: -0.5, 4: 2.5, 5: -2.5, 6: 0.49999997, 31: 126.4}),
			levels(0x3C00, map[int]int8{0: 127, 1: -3, 2: 1, 3: -1, 4: 3, 5: -3, 31: 126})},
		// 63.5 / 127 is 1/2; the largest one may be negative.
		{"scale a half", gguf.Q8_0, block(map[int]float32{7: -63.5, 8: 1, 9: 0.2, 10: -0.26}),
			levels(0x3800, map[int]int8{7: -127, 8: 2, 10: -1})},
		// 1/127 rounds to the half 0x2008, but levels come from the scale before that.
		{"scale that rounds", gguf.Q8_0, block(map[int]float32{0: 1, 1: 0.5, 2: -0.25}), levels(0x2008, map[int]int8{0: 127, 1: 64, 2: -32})},
		// 2^-24 · 127 has the least half that is not zero as its scale; half of that is a tie, which goes to zero.
		{"least scale", gguf.Q8_0, block(map[int]float32{0: 127 * 0x1p-24, 1: 0x1p-24}), levels(1, map[int]int8{0: 127, 1: 1})},
		{"scale that vanishes", gguf.Q8_0, block(map[int]float32{0: 127 * 0x1p-25, 1: 0x1p-25}), levels(0, map[int]int8{0: 127, 1: 1})},
		{"scale without inverse", gguf.Q8_0, block(map[int]float32{0: 127 * 0x1p-149, 1: 0x1p-149}), levels(0, nil)},

		{"zeros", gguf.Q4_0, block(nil), nibbles(0x8000, nil)}, // 0 / −8 is −0
		// The largest is negative: the scale is one.
		{"scale one", gguf.Q4_0, block(map[int]float32{0: -8, 1: 7, 2: 7.9, 3: 0.49, 4: 0.5, 5: -0.5, 6: -0.51, 16: 3, 31: -7.5}),
			nibbles(0x3C00, map[int]byte{0: 0, 1: 15, 2: 15, 3: 8, 4: 9, 5: 8, 6: 7, 16: 11, 31: 1})},
		// The largest is positive: the scale is −1, so that it is level −8.
		{"scale minus one", gguf.Q4_0, block(map[int]float32{0: 8, 1: -7, 2: -8, 17: 1}), nibbles(0xBC00, map[int]byte{0: 0, 1: 15, 2: 15, 17: 7})},
		// Of equal magnitudes the first one decides.
		{"first of equals", gguf.Q4_0, block(map[int]float32{5: 4, 6: -4}), nibbles(0xB800, map[int]byte{5: 0, 6: 15})},
		{"first of equals, other order", gguf.Q4_0, block(map[int]float32{5: -4, 6: 4}), nibbles(0x3800, map[int]byte{5: 0, 6: 15})},
	}
	for _, tt := range tests {
		t.Run(tt.kind.String()+" "+tt.name, func(t *testing.T) {
			got := make([]byte, len(tt.want))
			if err := gguf.Quantize(got, tt.kind, tt.src); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, tt.want) {
				t.Errorf("got  %x\nwant %x", got, tt.want)
			}
		})
	}
}

// TestQuantizeRule compares random blocks with the rule, one weight at a time: steps
// that ggml does in float32 are done in float64 and rounded once.
func TestQuantizeRule(t *testing.T) {
	round := func(x float64) float64 { return float64(float32(x)) } // a step in float32
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 2000 {
		src := make([]float32, 32)
		size := math.Exp2(float64(rng.IntN(40) - 30))
		most, signed := 0.0, 0.0
		for i := range src {
			src[i] = float32(rng.NormFloat64() * size)
			if n%3 == 0 { // few different values, as bf16 has: ties happen
				src[i] = math.Float32frombits(math.Float32bits(src[i]) &^ 0xFFFFF)
			}
			if a := math.Abs(float64(src[i])); a > most {
				most, signed = a, float64(src[i])
			}
		}
		d8, d4 := round(most/127), round(signed/-8)
		want8, want4 := make([]byte, 34), make([]byte, 18)
		binary.LittleEndian.PutUint16(want8, gguftest.Half(float32(d8)))
		binary.LittleEndian.PutUint16(want4, gguftest.Half(float32(d4)))
		for i, v := range src {
			want8[2+i] = byte(int8(math.Round(round(float64(v) * round(1/d8)))))
			q := math.Trunc(round(round(float64(v)*round(1/d4)) + 8.5))
			want4[2+i%16] |= byte(min(q, 15)) << (4 * (i / 16))
		}
		for kind, want := range map[gguf.Type][]byte{gguf.Q8_0: want8, gguf.Q4_0: want4} {
			got := make([]byte, len(want))
			if err := gguf.Quantize(got, kind, src); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("block %d, %s of %v\ngot  %x\nwant %x", n, kind, src, got, want)
			}
		}
	}
}

// TestQuantizeAgain: weights that come from blocks become the same blocks again, if
// one of them has the largest level.
func TestQuantizeAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const blocks = 300
	for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q4_0} {
		size := kind.BlockBytes()
		data := make([]byte, blocks*size)
		for i := range blocks {
			b := data[i*size:][:size]
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			binary.LittleEndian.PutUint16(b, 0x2C00+uint16(rng.IntN(1<<10))) // 1/16 to 1/8
			if kind == gguf.Q8_0 {
				for j := range b[2:] {
					b[2+j] = byte(max(int8(b[2+j]), -127))
				}
				b[2+rng.IntN(32)] = 127
			} else {
				b[2+rng.IntN(16)] &= 0xF0
			}
		}
		values, again := make([]float32, blocks*32), make([]byte, len(data))
		if err := errors.Join(gguf.Dequantize(values, kind, data), gguf.Quantize(again, kind, values)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data) {
			t.Errorf("%s: blocks change", kind)
		}
	}
}

func TestQuantizeRefuses(t *testing.T) {
	dst := map[gguf.Type][]byte{gguf.Q8_0: make([]byte, 68), gguf.Q4_0: make([]byte, 36)}
	for name, tt := range map[string]struct {
		value float32
		want  string
	}{
		"a NaN":              {float32(math.NaN()), "no finite number"},
		"an infinity":        {float32(math.Inf(-1)), "no finite number"},
		"too large":          {0x1p100, "too large"},
		"larger than a half": {65520 * 127, "too large"},
	} {
		for kind, out := range dst {
			if kind == gguf.Q4_0 && name == "larger than a half" {
				continue // its limit is another one
			}
			src := make([]float32, 64)
			src[40] = tt.value
			if err := gguf.Quantize(out, kind, src); !errors.Is(err, gguf.ErrValue) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "32 to 63") {
				t.Errorf("%s, %s: err = %v", kind, name, err)
			}
		}
	}
	if err := gguf.Quantize(dst[gguf.Q8_0], gguf.Q8_0, block(map[int]float32{0: 65504})); err == nil {
		t.Error("two blocks of one are taken")
	}
	if err := gguf.Quantize(nil, gguf.Q6K, nil); !errors.Is(err, gguf.ErrType) {
		t.Errorf("Q6_K: err = %v, want ErrType", err)
	}
	if gguf.Q6K.Quantizes() || !gguf.Q8_0.Quantizes() || !gguf.Q4_0.Quantizes() {
		t.Error("wrong abilities")
	}
}

func BenchmarkQuantize(b *testing.B) {
	src := make([]float32, 1<<16)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range src {
		src[i] = float32(rng.NormFloat64())
	}
	for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q4_0} {
		dst := make([]byte, len(src)/kind.BlockWeights()*kind.BlockBytes())
		b.Run(kind.String(), func(b *testing.B) {
			b.SetBytes(int64(4 * len(src)))
			for b.Loop() {
				if err := gguf.Quantize(dst, kind, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	data, out := make([]byte, 2*len(src)), make([]float32, len(src))
	b.Run("BF16 to F32", func(b *testing.B) {
		b.SetBytes(int64(4 * len(src)))
		for b.Loop() {
			if err := gguf.Dequantize(out, gguf.BF16, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
