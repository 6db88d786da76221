package model

import (
	"math"
	"slices"
	"testing"
)

func TestInvFreq(t *testing.T) {
	plain := RoPE{Theta: 10000, Type: "default"}.InvFreq(8, 4096)
	for i, want := range []float64{1, 0.1, 0.01, 0.001} {
		if math.Abs(float64(plain[i])-want) > 1e-7*want {
			t.Errorf("plain: %d is %v, want %v", i, plain[i], want)
		}
	}
	linear := RoPE{Theta: 10000, Type: "linear", Factor: 4}.InvFreq(8, 4096)
	for i := range linear {
		if linear[i] != plain[i]/4 {
			t.Errorf("linear: %d is %v, want %v", i, linear[i], plain[i]/4)
		}
	}
}

// TestInvFreqLlama3 checks the three ranges with the settings of Llama 3.2.
func TestInvFreqLlama3(t *testing.T) {
	r := RoPE{Theta: 500000, Type: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
	got, plain := r.InvFreq(64, 4096), RoPE{Theta: 500000}.InvFreq(64, 4096)
	kept, slowed, blended := 0, 0, 0
	for i := range got {
		wavelength := 2 * math.Pi / float64(plain[i])
		switch {
		case wavelength < 2048:
			kept++
			if got[i] != plain[i] {
				t.Errorf("short wave %d is %v, want %v", i, got[i], plain[i])
			}
		case wavelength > 8192:
			slowed++
			if got[i] != plain[i]/32 {
				t.Errorf("long wave %d is %v, want %v", i, got[i], plain[i]/32)
			}
		default:
			blended++
			if got[i] <= plain[i]/32 || got[i] >= plain[i] {
				t.Errorf("wave %d is %v, want between %v and %v", i, got[i], plain[i]/32, plain[i])
			}
		}
	}
	if kept != 15 || blended != 3 || slowed != 14 {
		t.Errorf("%d kept, %d blended, %d slowed", kept, blended, slowed)
	}
}

func TestInvFreqYarn(t *testing.T) {
	r := RoPE{Theta: 1e6, Type: "yarn", Factor: 4, OriginalContext: 32768, BetaFast: 32, BetaSlow: 1, Truncate: true}
	got, plain := r.InvFreq(128, 4096), RoPE{Theta: 1e6}.InvFreq(128, 4096)
	// The ramp goes from floor(23.59) to ceil(39.65).
	for i := range got {
		ramp := min(max((float64(i)-23)/(40-23), 0), 1)
		want := float64(plain[i]) * (ramp/4 + 1 - ramp)
		if math.Abs(float64(got[i])-want) > 1e-6*want {
			t.Errorf("%d is %v, want %v", i, got[i], want)
		}
	}
	r.Truncate = false
	if exact := r.InvFreq(128, 4096); exact[24] == got[24] {
		t.Error("the borders of the ramp are rounded though they should not be")
	}
	r.BetaFast, r.BetaSlow = 1, 1
	r.Truncate = true
	r.OriginalContext = 1 // low and high both end at 0
	for i, f := range r.InvFreq(128, 4096) {
		if math.IsNaN(float64(f)) {
			t.Errorf("%d is not a number", i)
		}
	}
}

func TestYarnAttention(t *testing.T) {
	parse := func(extra map[string]any) RoPE {
		s := map[string]any{"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
		for k, v := range extra {
			s[k] = v
		}
		c, err := ParseConfig(encode(t, with(llamaConfig(), "rope_scaling", s)))
		if err != nil {
			t.Fatal(err)
		}
		return c.RoPE
	}
	tests := []struct {
		name  string
		extra map[string]any
		want  float64
	}{
		{"by factor", nil, 0.1*math.Log(40) + 1},
		{"given", map[string]any{"attention_factor": 1.5}, 1.5},
		{"both scales", map[string]any{"mscale": 0.707, "mscale_all_dim": 1.0}, (0.0707*math.Log(40) + 1) / (0.1*math.Log(40) + 1)},
		{"one scale only", map[string]any{"mscale": 0.707}, 0.1*math.Log(40) + 1},
		{"factor below one", map[string]any{"factor": 0.5}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(tt.extra).Attention; math.Abs(got-tt.want) > 1e-12 {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestInvFreqLong checks which table serves which context, with numbers that are
// exact: theta 16 and four pairs give 1, ½, ¼, ⅛.
func TestInvFreqLong(t *testing.T) {
	r := RoPE{Theta: 16, Type: "longrope", OriginalContext: 100, ShortFactors: []float64{1, 2, 1, 4}, LongFactors: []float64{2, 4, 8, 16}}
	for context, want := range map[int][]float32{
		99:  {1, 0.25, 0.25, 0.03125},
		100: {1, 0.25, 0.25, 0.03125},
		101: {0.5, 0.125, 0.03125, 0.0078125},
	} {
		if got := r.InvFreq(8, context); !slices.Equal(got, want) {
			t.Errorf("context %d: %v, want %v", context, got, want)
		}
	}
}
