package gguf_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

// weight is the formula of weight i of a block, written from the layout: one weight
// at a time and in float64, where everything is exact until the end.
func weight(kind gguf.Type, b []byte, i int) float64 {
	f16 := func(at int) float64 {
		h := binary.LittleEndian.Uint16(b[at:])
		value := float64(h&0x3FF) * math.Pow(2, -24)
		if e := int(h >> 10 & 31); e > 0 {
			value = (1 + float64(h&0x3FF)/1024) * math.Pow(2, float64(e-15))
		}
		if h>>15 == 1 {
			value = -value
		}
		return value
	}
	// scales of Q4_K and Q5_K: six bits each, the upper four sub-blocks spread out
	scales := func(j int) (scale, least float64) {
		p := b[4:16]
		if j < 4 {
			return float64(p[j] % 64), float64(p[j+4] % 64)
		}
		return float64(p[j+4]%16 + p[j-4]/64*16), float64(p[j+4]/16 + p[j]/64*16)
	}
	switch kind {
	case gguf.Q8_0:
		return f16(0) * float64(int8(b[2+i]))
	case gguf.Q4_0:
		if i < 16 {
			return f16(0) * (float64(b[2+i]%16) - 8)
		}
		return f16(0) * (float64(b[2+i-16]/16) - 8)
	case gguf.Q4K, gguf.Q5K:
		scale, least := scales(i / 32)
		nibbles, fifth := b[16:], 0.0
		if kind == gguf.Q5K {
			nibbles = b[48:]
			if b[16+i%32]&(1<<(i/32)) != 0 {
				fifth = 16
			}
		}
		q := nibbles[i/64*32+i%32]
		if i%64 < 32 {
			q %= 16
		} else {
			q /= 16
		}
		return f16(0)*scale*(float64(q)+fifth) - f16(2)*least
	case gguf.Q6K:
		half, l := i/128, i%128
		low, high, sc := b[half*64:], b[128+half*32:], b[192+half*8:]
		var q int
		switch l / 32 {
		case 0:
			q = int(low[l])%16 + int(high[l])%4*16
		case 1:
			q = int(low[l])%16 + int(high[l-32])/4%4*16
		case 2:
			q = int(low[l-64])/16 + int(high[l-64])/16%4*16
		case 3:
			q = int(low[l-64])/16 + int(high[l-96])/64*16
		}
		return f16(208) * float64(int8(sc[l/16])) * float64(q-32)
	}
	return math.NaN()
}

// TestDequantize compares random blocks, all bits of them, with the formulas.
func TestDequantize(t *testing.T) {
	for _, kind := range []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.Q4K, gguf.Q5K, gguf.Q6K} {
		t.Run(kind.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(kind)))
			const blocks = 300
			n, size := kind.BlockWeights(), kind.BlockBytes()
			data := make([]byte, blocks*size)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			for i := range blocks { // finite scales, the smallest subnormals included
				for _, at := range map[gguf.Type][]int{gguf.Q4K: {0, 2}, gguf.Q5K: {0, 2}, gguf.Q6K: {208}}[kind] {
					data[i*size+at+1] &= 0xBF
				}
				if kind == gguf.Q8_0 || kind == gguf.Q4_0 {
					data[i*size+1] &= 0xBF
				}
			}
			got := make([]float32, blocks*n)
			if err := gguf.Dequantize(got, kind, data); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				want := float32(weight(kind, data[i/n*size:][:size], i%n))
				if v != want {
					t.Fatalf("weight %d is %v, want %v", i, v, want)
				}
			}
		})
	}
}

func TestDequantizePlain(t *testing.T) {
	values := []float32{0, 1, -2.5, 65504, 0x1p-24, -0x1p-14, float32(math.Inf(1)), float32(math.Inf(-1))}
	for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16} {
		data := gguftest.Quantize(kind, values)
		got := make([]float32, len(values))
		if err := gguf.Dequantize(got, kind, data); err != nil {
			t.Fatal(err)
		}
		for i, want := range values {
			if kind == gguf.BF16 && want == 65504 {
				want = 65536 // eight bits
			}
			if got[i] != want {
				t.Errorf("%s: %v became %v", kind, want, got[i])
			}
		}
	}
	var nan [1]float32
	if err := gguf.Dequantize(nan[:], gguf.F16, []byte{1, 0x7C}); err != nil || nan[0] == nan[0] {
		t.Errorf("a NaN became %v, %v", nan[0], err)
	}
}

// TestQuantizeIsNear ties layout and meaning together: what a quantizer puts into
// blocks comes back within half a step.
func TestQuantizeIsNear(t *testing.T) {
	for kind, limit := range map[gguf.Type]float64{gguf.Q8_0: 0.005, gguf.Q4_0: 0.08, gguf.Q4K: 0.08, gguf.Q5K: 0.05, gguf.Q6K: 0.03} {
		t.Run(kind.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 3))
			values := make([]float32, 4*256)
			for i := range values {
				values[i] = 2*rng.Float32() - 1
			}
			got := make([]float32, len(values))
			if err := gguf.Dequantize(got, kind, gguftest.Quantize(kind, values)); err != nil {
				t.Fatal(err)
			}
			for i, want := range values {
				if d := math.Abs(float64(got[i] - want)); d > limit {
					t.Fatalf("weight %d: %v became %v", i, want, got[i])
				}
			}
		})
	}
}

func TestDequantizeRefuses(t *testing.T) {
	if err := gguf.Dequantize(make([]float32, 32), 6, make([]byte, 22)); !errors.Is(err, gguf.ErrType) {
		t.Errorf("Q5_0: err = %v, want ErrType", err)
	}
	if err := gguf.Dequantize(make([]float32, 32), 99, make([]byte, 22)); !errors.Is(err, gguf.ErrType) {
		t.Errorf("unknown type: err = %v, want ErrType", err)
	}
	for _, size := range []int{33, 35, 68, 0} {
		if err := gguf.Dequantize(make([]float32, 32), gguf.Q8_0, make([]byte, size)); err == nil {
			t.Errorf("%d bytes for one block are taken", size)
		}
	}
	if gguf.Type(6).Dequantizes() || !gguf.Q6K.Dequantizes() || gguf.Type(6).String() != "Q5_0" || gguf.Type(77).String() != "type 77" {
		t.Error("wrong names or abilities")
	}
}
