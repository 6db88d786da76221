package profile

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func scaledCosts(c Costs, by [numFeatures]float64) Costs {
	for j, v := range c.all() {
		*v *= by[j]
	}
	return c
}

// Refined costs follow what many different steps show, within the bounds.
func TestRefineFollowsObservations(t *testing.T) {
	measured := example().Step
	for name, tc := range map[string]struct {
		truth   [numFeatures]float64 // times the measured costs
		want    [numFeatures]float64
		atBound []string
	}{
		"as measured":         {[numFeatures]float64{1, 1, 1, 1, 1}, [numFeatures]float64{1, 1, 1, 1, 1}, nil},
		"some slower":         {[numFeatures]float64{1.5, 0.5, 2, 3, 1}, [numFeatures]float64{1.5, 0.5, 2, 3, 1}, nil},
		"beyond the bounds":   {[numFeatures]float64{1, 1, 1, 9, 1}, [numFeatures]float64{0, 0, 0, RefineBound, 0}, []string{"token_s"}},
		"far below all of it": {[numFeatures]float64{0.01, 0.01, 0.01, 0.01, 0.01}, [numFeatures]float64{0.25, 0.25, 0.25, 0.25, 0.25}, costNames[:]},
	} {
		r := rand.New(rand.NewPCG(7, 8))
		truth := scaledCosts(measured, tc.truth)
		var samples []Sample
		for i := range 20000 {
			w := randomWork(r)
			switch context := 1 + r.IntN(8000); i % 3 { // what shows one cost alone
			case 0:
				w = Work{Decodes: 1 + r.IntN(20)}
				w.DecodeContext = w.Decodes * context
			case 1:
				w = Work{}
				w.Add(context, 2+r.IntN(100))
			}
			samples = append(samples, Sample{Work: w, Seconds: truth.StepSeconds(w)})
		}
		o, err := Observe(samples)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Refine(measured, o)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range got.Costs.all() {
			if f := *v / *measured.all()[j]; tc.want[j] > 0 && math.Abs(f/tc.want[j]-1) > 0.02 || f < 0.25 || f > 4 {
				t.Errorf("%s: %s is %.4f times the measured one, want %v", name, costNames[j], f, tc.want[j])
			}
		}
		for _, b := range tc.atBound {
			if !slices.Contains(got.AtBound, b) {
				t.Errorf("%s: %v at the bound, want %s", name, got.AtBound, b)
			}
		}
		if len(tc.atBound) == 0 && len(got.AtBound) > 0 || got.After > got.Before {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// No costs within the bounds are better, and steps that are all alike do not pull apart the
// costs that they cannot tell from each other.
func TestRefineIsTheLeastWithinTheBounds(t *testing.T) {
	measured := example().Step
	r := rand.New(rand.NewPCG(9, 10))
	sum := func(c Costs, o Observed) (s float64) {
		for j, v := range c.all() {
			off := *v / *measured.all()[j]
			s += (off - 1) * (off - 1)
		}
		return s + o.error(c)*o.error(c)*float64(o.Samples)
	}
	for range 20 {
		var samples []Sample
		for range 1 + r.IntN(6) {
			w := randomWork(r)
			samples = append(samples, Sample{Work: w, Seconds: measured.StepSeconds(w) * math.Exp(1.5*r.NormFloat64())})
		}
		o, err := Observe(samples)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Refine(measured, o)
		if err != nil {
			t.Fatal(err)
		}
		least := sum(got.Costs, o)
		for range 500 {
			other := got.Costs
			for j, v := range other.all() {
				m := *measured.all()[j]
				*v = min(max(*v*(1+0.05*r.NormFloat64()), m/RefineBound), m*RefineBound)
			}
			if s := sum(other, o); s < least*(1-1e-9) {
				t.Fatalf("%+v leaves %v, %+v only %v", got, least, other, s)
			}
		}
	}
	alike := slices.Repeat([]Sample{{Work: Work{Decodes: 4, DecodeContext: 4000}, Seconds: 2 * measured.StepSeconds(Work{Decodes: 4, DecodeContext: 4000})}}, 500)
	o, _ := Observe(alike)
	got, err := Refine(measured, o)
	if err != nil || got.Costs.Token != measured.Token || got.Costs.ChunkContext != measured.ChunkContext || got.After > 0.01 || math.Abs(got.Before-0.5) > 1e-9 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, f := range []float64{got.Costs.Step / measured.Step, got.Costs.Decode / measured.Decode} {
		if f <= 1 || f > 3 {
			t.Errorf("a cost is %v times the measured one", f)
		}
	}
}

func TestRefineOfLittle(t *testing.T) {
	o, err := Observe([]Sample{{Work: Work{Decodes: 1, DecodeContext: 10}, Seconds: 0.01}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Refine(Costs{}, o); err == nil {
		t.Error("nothing can be refined")
	}
	only := Costs{Step: 0.02}
	if got, err := Refine(only, o); err != nil || got.Costs.Decode != 0 || !(got.Costs.Step > 0.01 && got.Costs.Step < 0.02) {
		t.Errorf("%+v, %v", got, err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var again Observed
	if err := json.Unmarshal(text, &again); err != nil || again != o {
		t.Errorf("%+v, %v", again, err)
	}
	for name, spoil := range map[string]func(*Observed){
		"none":       func(o *Observed) { o.Samples = 0 },
		"asymmetric": func(o *Observed) { o.Gram[0][1]++ },
		"below zero": func(o *Observed) { o.Gram[3][3] = -1 },
		"too much":   func(o *Observed) { o.Gram[3][3] = 1e90 },
		"no squares": func(o *Observed) { o.Squares = 0 },
		"NaN":        func(o *Observed) { o.Right[0] = math.NaN() },
	} {
		bad := o
		spoil(&bad)
		if _, err := Refine(only, bad); !errors.Is(err, ErrSamples) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Observe([]Sample{{}}); !errors.Is(err, ErrSamples) {
		t.Error(err)
	}
}
