package predict

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// every lists all predictors, the automatic choice with them.
func every() []Predictor { return append(predictors(), Auto{}) }

// TestPredictors is the behavior that all predictors share.
func TestPredictors(t *testing.T) {
	nan := math.NaN()
	for _, p := range every() {
		t.Run(p.Name(), func(t *testing.T) {
			for _, tc := range []struct {
				name   string
				series []float64
				want   float64 // of every step
			}{
				{"a constant series goes on", slices.Repeat([]float64{12.5}, 20), 12.5},
				{"zero goes on", make([]float64, 20), 0},
				{"a cold start is no load", append(make([]float64, 50), slices.Repeat([]float64{7}, 20)...), 7},
				{"gaps in a constant series are no change", []float64{5, 5, nan, 5, 5, math.Inf(1), nan, 5, 5, -3, 5, 5, 5, nan}, 5},
				{"leading gaps are a cold start", []float64{nan, nan, 0, nan, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, 4},
			} {
				for _, n := range []int{1, 3, 20} {
					got := p.Forecast(tc.series, n)
					if len(got) != n {
						t.Fatalf("%s: %d values, want %d", tc.name, len(got), n)
					}
					for _, v := range got {
						if math.Abs(v-tc.want) > 1e-6*(1+tc.want) {
							t.Fatalf("%s: %v, want %v", tc.name, got, tc.want)
						}
					}
				}
			}
			for name, series := range map[string][]float64{"nothing": nil, "gaps alone": {nan, nan}, "a last gap after nothing": {nan}} {
				if got := p.Forecast(series, 3); got != nil {
					t.Errorf("%s: %v, want nil", name, got)
				}
			}
			if got := p.Forecast([]float64{1, 2, 3, 4, 5, 6}, 0); got != nil {
				t.Errorf("no steps: %v, want nil", got)
			}
			down := []float64{90, 80, 70, 60, 50, 40, 30, 20, 10, 5}
			for _, v := range p.Forecast(down, 30) {
				if v < 0 {
					t.Errorf("below zero: %v", v)
				}
			}
		})
	}
}

// Whatever comes in, what comes out is a load, the same each time, and the input is untouched.
func TestPredictorsOnRandomSeries(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 60 {
		series := make([]float64, r.IntN(70))
		for i := range series {
			switch series[i] = r.ExpFloat64() * math.Pow(10, float64(r.IntN(7)-2)); r.IntN(12) {
			case 0:
				series[i] = math.NaN()
			case 1:
				series[i] = 0
			case 2:
				series[i] = math.Inf(1 - 2*r.IntN(2))
			case 3:
				series[i] = -series[i]
			}
		}
		before := slices.Clone(series)
		for _, p := range every() {
			got := p.Forecast(series, 12)
			if i := slices.IndexFunc(got, isGap); i >= 0 {
				t.Fatalf("seed %d, round %d: %s forecasts %v for %v", seed, round, p.Name(), got, series)
			}
			if again := p.Forecast(series, 12); !slices.Equal(got, again) {
				t.Fatalf("seed %d, round %d: %s is not deterministic", seed, round, p.Name())
			}
		}
		for i, v := range series {
			if v != before[i] && !math.IsNaN(v) {
				t.Fatalf("seed %d, round %d: a predictor changed the series", seed, round)
			}
		}
	}
}

// The golden values come from scripts/planner/golden.py, which computes them in other ways.
func TestGoldenForecasts(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Series    string               `json:"series"`
		Values    []float64            `json:"values"`
		Season    int                  `json:"season"`
		Forecasts map[string][]float64 `json:"forecasts"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 7 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, tc := range cases {
		if got := season(filled(tc.Values)); got != tc.Season {
			t.Errorf("%s: a season of %d steps, want %d", tc.Series, got, tc.Season)
		}
		if len(tc.Forecasts) < len(predictors())-1 {
			t.Errorf("%s: %d predictors", tc.Series, len(tc.Forecasts))
		}
		for name, want := range tc.Forecasts {
			p, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			tolerance := 1e-9
			if name == "arima" {
				tolerance = 1e-5 // two searches for one minimum
			}
			got := p.Forecast(tc.Values, len(want))
			for i := range want {
				if math.Abs(got[i]-want[i]) > tolerance*(1+want[i]) {
					t.Errorf("%s of %s: %v, want %v", name, tc.Series, got, want)
					break
				}
			}
		}
	}
}

// The choice is the predictor whose kind the series is of; without evidence, the simplest.
func TestAutoChoosesByTheSeries(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	series := func(n int, f func(t int) float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = f(i)
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		series []float64
		want   []string
	}{
		{"two values", []float64{1, 2}, []string{"constant"}},
		{"constant", slices.Repeat([]float64{3}, 30), []string{"constant"}},
		{"noise around a level", series(100, func(int) float64 { return 20 + 4*r.NormFloat64() }), []string{"moving-average", "holt-winters", "arima", "kalman"}},
		{"a ramp", series(60, func(t int) float64 { return 3 + float64(t)/2 }), []string{"linear"}},
		{"a season", series(120, func(t int) float64 { return 25 + 20*math.Sin(2*math.Pi*float64(t)/30) }), []string{"holt-winters", "arima"}},
	} {
		p, scores := Auto{}.Choose(tc.series, 9)
		if !slices.Contains(tc.want, p.Name()) {
			t.Errorf("%s: %s, want one of %v; %+v", tc.name, p.Name(), tc.want, scores)
		}
	}
}

func TestNamed(t *testing.T) {
	for _, name := range Names() {
		p, err := Named(name)
		if err != nil || p.Name() != name {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if _, err := Named("prophet"); err == nil {
		t.Error("prophet is known")
	}
}

func TestFilledGaps(t *testing.T) {
	nan := math.NaN()
	got := filled([]float64{nan, 0, 2, nan, nan, 8, -1, nan})
	if want := []float64{2, 4, 6, 8, 8, 8}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
