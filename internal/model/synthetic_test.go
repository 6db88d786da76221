package model

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/minitok"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

func TestSyntheticShapes(t *testing.T) {
	tests := []struct {
		name   string
		spec   Synthetic
		files  int
		tokens int
	}{
		{"defaults", Synthetic{}, 5, 512},
		{"qwen3, tied, sharded", Synthetic{Family: "qwen3", Tied: true, Shards: 3, KVHeads: 2, Vocab: 300}, 8, 300},
		{"bf16, biases", Synthetic{DType: "bf16", AttentionBias: true, MLPBias: true}, 5, 512},
		{"f16, padded vocabulary", Synthetic{DType: "f16", Vocab: 5000}, 5, 1280},
		{"rope, transformers 5", Synthetic{Transformers5: true, RopeTheta: 5e5,
			RopeScaling: map[string]any{"rope_type": "linear", "factor": 2.0}}, 5, 512},
		{"more shards than tensors", Synthetic{Layers: 1, Shards: 50}, 17, 512},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := write(t, tt.spec)
			m := mustOpen(t, dir)
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != tt.files || m.TokenLimit() != tt.tokens {
				t.Errorf("%d files, %d tokens; want %d, %d", len(entries), m.TokenLimit(), tt.files, tt.tokens)
			}
			c, s := m.Config(), tt.spec.withDefaults()
			if c.Layers != s.Layers || c.Heads != s.Heads || c.KVHeads != s.KVHeads || c.MaxContext != s.ContextLen ||
				c.TiedHead != s.Tied || c.QKVBias != s.AttentionBias || c.MLPBias != s.MLPBias || c.RoPE.Theta != s.RopeTheta {
				t.Errorf("config %+v does not fit %+v", c, s)
			}
		})
	}
}

func TestSyntheticRefuses(t *testing.T) {
	tests := []struct {
		name string
		spec Synthetic
		want string
	}{
		{"unknown family", Synthetic{Family: "mamba"}, "mamba"},
		{"unknown type", Synthetic{DType: "f8"}, `"f8"`},
		{"small vocabulary", Synthetic{Vocab: minitok.MinVocab - 1}, "vocabulary"},
		{"odd heads", Synthetic{Heads: 4, KVHeads: 3}, "does not divide"},
		{"negative size", Synthetic{Hidden: -64}, "hidden_size"},
		{"unknown rope", Synthetic{RopeScaling: map[string]any{"rope_type": "x"}}, "rope_type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.spec.Write(t.TempDir()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want it to say %q", err, tt.want)
			}
		})
	}
	if err := (Synthetic{}).Write(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("folder does not exist: want an error")
	}
}

// TestSyntheticIsTheSameEverywhere pins the bytes: nodes with other processors
// must make the same files, or their digests differ.
func TestSyntheticIsTheSameEverywhere(t *testing.T) {
	for dtype, want := range map[string]string{
		"f32":  "717178e2c437aa40",
		"bf16": "f316be2ecba0ace3",
		"f16":  "c96591c4b5196029",
	} {
		files, err := readContent(os.DirFS(write(t, Synthetic{Family: "qwen3", DType: dtype, Seed: 3})), ".")
		if err != nil {
			t.Fatal(err)
		}
		if got := files.hash()[:16]; got != want {
			t.Errorf("%s: hash %s, want %s", dtype, got, want)
		}
	}
}

// TestSyntheticChunks writes a tensor of several chunks and checks that they
// differ and have the intended spread.
func TestSyntheticChunks(t *testing.T) {
	s := Synthetic{Hidden: 64, Vocab: 3 * fillElems / 64}
	m := mustOpen(t, write(t, s))
	embed, _ := m.Weight(RoleEmbed, 0)
	chunk := fillElems * 4
	if bytes.Equal(embed.Data[:chunk], embed.Data[chunk:2*chunk]) {
		t.Error("two chunks are equal")
	}
	var sum, squares float64
	for i := 0; i < len(embed.Data); i += 4 {
		v := float64(math.Float32frombits(uint32(embed.Data[i]) | uint32(embed.Data[i+1])<<8 | uint32(embed.Data[i+2])<<16 | uint32(embed.Data[i+3])<<24))
		sum += v
		squares += v * v
	}
	n := float64(len(embed.Data) / 4)
	if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 1e-3 || math.Abs(deviation-0.125) > 1e-3 {
		t.Errorf("mean %v, deviation %v; want 0, 0.125", mean, deviation)
	}
}

func TestRoundHalves(t *testing.T) {
	tests := []struct {
		in        float32
		bf16, f16 uint16
	}{
		{0, 0, 0},
		{1, 0x3F80, 0x3C00},
		{-2, 0xC000, 0xC000},
		{0x1p-24, 0x3380, 0x0001},
		{0x1p-25, 0x3300, 0x0000},    // a tie goes to even
		{0x1.8p-24, 0x33C0, 0x0002},  // here too
		{0x1p-14, 0x3880, 0x0400},    // smallest normal
		{1.9999, 0x4000, 0x4000},     // rounds into the next exponent
		{1.00390625, 0x3F80, 0x3C04}, // a tie in bf16
		{1.01171875, 0x3F82, 0x3C0C}, // a tie the other way
		{65504, 0x4780, 0x7BFF},
		{65520, 0x4780, 0x7C00},
		{-1e6, 0xC974, 0xFC00},
	}
	for _, tt := range tests {
		if got := safetensors.ToBF16(tt.in); got != tt.bf16 {
			t.Errorf("ToBF16(%v) = %#04x, want %#04x", tt.in, got, tt.bf16)
		}
		if got := f16(tt.in); got != tt.f16 {
			t.Errorf("f16(%v) = %#04x, want %#04x", tt.in, got, tt.f16)
		}
	}
}
