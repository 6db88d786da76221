package bench

import (
	"math"
	"testing"
)

func logs(p ...float64) []float32 {
	out := make([]float32, len(p))
	for i, v := range p {
		out[i] = float32(math.Log(v))
	}
	return out
}

func shifted(logits []float32, by float32) []float32 {
	out := make([]float32, len(logits))
	for i, v := range logits {
		out[i] = v + by
	}
	return out
}

func TestDivergence(t *testing.T) {
	half := math.Log(0.5)
	for _, tc := range []struct {
		name         string
		ref, variant []float32
		next         int
		kl           float64
		agree        float64
		diffMax      float64
		perplexity   float64 // of the variant
		change       float64 // of it, percent
	}{
		{"the same", logs(0.5, 0.25, 0.25), logs(0.5, 0.25, 0.25), 1, 0, 100, 0, 4, 0},
		{"all logits moved: the same distribution", logs(0.5, 0.25, 0.25), shifted(logs(0.5, 0.25, 0.25), 8), 0, 0, 100, 8, 2, 0},
		{"known divergence", logs(0.5, 0.5), logs(0.75, 0.25), 0, 0.5*math.Log(0.5/0.75) + 0.5*math.Log(0.5/0.25), 100, -half, 1 / 0.75, 100 * (0.5/0.75 - 1)},
		{"it is not symmetric", logs(0.75, 0.25), logs(0.5, 0.5), 1, 0.75*math.Log(1.5) + 0.25*math.Log(0.5), 100, -half, 2, -50},
		{"another winner", logs(0.25, 0.75), logs(0.75, 0.25), 1, 0.25*math.Log(1./3) + 0.75*math.Log(3), 0, math.Log(3), 4, 200},
		{"large logits", []float32{1000, 0}, []float32{1000, 990}, 0, math.Log1p(math.Exp(-10)), 100, 990, 1 + math.Exp(-10), 100 * math.Exp(-10)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var d divergence
			d.add(tc.ref, tc.variant, tc.next)
			f := d.figures()
			for key, want := range map[string]float64{
				keyKLMean: tc.kl, keyKLMax: tc.kl, keyAgree: tc.agree, keyDiffMax: tc.diffMax, keyPerplexity: tc.perplexity, keyPerplexed: tc.change,
			} {
				// The logits are float32, of numbers up to 10 where shares count.
				if got := f[key].Median; math.Abs(got-want) > 2e-5*max(1, math.Abs(want)) {
					t.Errorf("%s is %v, want %v", key, got, want)
				}
			}
		})
	}
}

// Means are over positions, the largest is the largest, and a position without a next
// token says nothing of perplexity.
func TestDivergenceOfPositions(t *testing.T) {
	var d divergence
	if got := d.figures(); len(got) != 0 {
		t.Errorf("nothing gives %v", got)
	}
	a, b := logs(0.5, 0.5), logs(0.75, 0.25)
	kl := 0.5*math.Log(0.5/0.75) + 0.5*math.Log(2)
	d.add(a, a, 0)
	d.add(a, b, 1)
	d.add(b, a, 0)
	d.add(a, shifted(a, 3), noNext)
	other := 0.75*math.Log(1.5) + 0.25*math.Log(0.5)
	f := d.figures()
	for key, want := range map[string]float64{
		keyKLMean: (kl + other) / 4, keyKLMax: kl, keyAgree: 100, keyDiffMax: 3,
		keyDiffMean:   (2*math.Log(1.5) + 2*math.Log(2) + 2*3) / 8,
		keyPerplexity: math.Pow(1/(0.5*0.25*0.5), 1./3),
		keyPerplexed:  100 * (math.Pow(1/(0.5*0.25*0.5), 1./3)/math.Pow(1/(0.5*0.5*0.75), 1./3) - 1),
	} {
		if got := f[key].Median; math.Abs(got-want) > 1e-5*max(1, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}
