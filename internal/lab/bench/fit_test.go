package bench

import (
	"math"
	"strings"
	"testing"
)

// along returns points of a function, off by a few percent in turns.
func along(noise float64, f func(n float64) float64) (out []point) {
	for i, n := range []float64{2, 8, 32, 128, 512, 1000} {
		sign := float64(1 - 2*(i%2))
		out = append(out, point{n, f(n) * (1 + sign*noise)})
	}
	return out
}

// Each term is found where it is, and only there.
func TestFit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		points   []point
		want     []float64 // factors of constant, linear, quadratic
		dominant string
		share    float64
		at10000  float64
	}{
		{"constant", along(0, func(float64) float64 { return 7 }), []float64{7, 0, 0}, termConstant, 1, 7},
		{"linear", along(0, func(n float64) float64 { return 3 * n }), []float64{0, 3, 0}, termLinear, 1, 30_000},
		{"constant and linear", along(0, func(n float64) float64 { return 5 + 0.02*n }), []float64{5, 0.02, 0}, termLinear, 0.8, 205},
		{"quadratic", along(0, func(n float64) float64 { return 1e-4 * n * n }), []float64{0, 0, 1e-4}, termQuadratic, 1, 10_000},
		{"all", along(0, func(n float64) float64 { return 10 + 0.1*n + 1e-4*n*n }), []float64{10, 0.1, 1e-4}, termLinear, 100.0 / 210, 11_010},
		{"constant, off by 5 %", along(0.05, func(float64) float64 { return 7 }), []float64{7, 0, 0}, termConstant, 1, 7},
		{"linear, off by 5 %", along(0.05, func(n float64) float64 { return 3 * n }), []float64{0, 3, 0}, termLinear, 1, 30_000},
		{"linear, and nothing at the least", append(along(0, func(n float64) float64 { return 3 * n })[1:], point{2, 0}), []float64{0, 3, 0}, termLinear, 1, 30_000},
		{"falling", along(0, func(n float64) float64 { return 100 - 0.001*n }), []float64{100, 0, 0}, termConstant, 1, 100},
		{"zero", along(0, func(float64) float64 { return 0 }), []float64{0, 0, 0}, "", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			law, deviation := fit(tc.points)
			got := map[string]float64{}
			for _, term := range law {
				got[term.Name] = term.Factor
			}
			for i, name := range []string{termConstant, termLinear, termQuadratic} {
				if math.Abs(got[name]-tc.want[i]) > 0.03*tc.want[i] {
					t.Errorf("%s factor %g, want %g", name, got[name], tc.want[i])
				}
			}
			if deviation > 0.1 {
				t.Errorf("deviation %g", deviation)
			}
			if name, share := law.Dominant(1000); name != tc.dominant || math.Abs(share-tc.share) > 0.01 {
				t.Errorf("%s dominates with %g, want %s with %g", name, share, tc.dominant, tc.share)
			}
			if v := law.At(10_000); math.Abs(v-tc.at10000) > 0.03*tc.at10000 {
				t.Errorf("%g at 10,000, want %g", v, tc.at10000)
			}
		})
	}
}

// A law has fewer terms than there are points: through two points goes no parabola.
func TestFitOfFewPoints(t *testing.T) {
	if law, _ := fit([]point{{10, 3}}); law != nil {
		t.Errorf("one point gave %v", law)
	}
	if law, _ := fit([]point{{10, 3}, {100, 30}}); law != nil {
		t.Errorf("two points gave %v", law)
	}
	law, deviation := fit([]point{{10, 3}, {100, 30}, {200, 60}})
	if len(law) != 1 || law[0].Name != termLinear || math.Abs(law[0].Factor-0.3) > 1e-9 || deviation > 1e-9 {
		t.Errorf("three points gave %v, off by %g", law, deviation)
	}
	if law, _ := fit([]point{{1, 4}, {2, 9}, {4, 25}}); len(law) > 2 {
		t.Errorf("three points gave %v", law)
	}
}

func TestLawText(t *testing.T) {
	for want, law := range map[string]Law{
		"2,192 + 165 n + 0.123 n²":    {{termConstant, 2192.4}, {termLinear, 165.3}, {termQuadratic, 0.1234}},
		"0":                           nil,
		"1.5 + 0.0213 n + 1.2e-07 n²": {{termConstant, 1.5}, {termLinear, 0.02134}, {termQuadratic, 1.2e-7}},
	} {
		if got := law.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Only a point beyond all measured ones is extrapolated, and the report says so.
func TestFits(t *testing.T) {
	table := Table{Rows: []Row{
		{"idle", map[string]Figure{"2": {2, 2, 2, 1}, "10": {10, 10, 10, 1}, "100": {100, 100, 100, 1}}},
		{"once", map[string]Figure{"2": {2, 2, 2, 1}}},
		{"noise", map[string]Figure{"2": {9, 9, 9, 1}, "10": {1, 1, 1, 1}, "100": {9, 9, 9, 1}}},
	}}
	at := map[string]int{"2": 2, "10": 10, "100": 100}
	fits := table.fits(axisWorkers, at, extrapolateTo)
	if len(fits) != 1 || fits[0].Figure != "idle" || fits[0].At != 100 || fits[0].Dominant != termLinear || fits[0].ExtrapolatedTo != extrapolateTo {
		t.Fatalf("%+v", fits)
	}
	var b strings.Builder
	fitsMarkdown(&b, append(fits, table.fits(axisNodes, at, 0)...))
	for _, want := range []string{"### Laws over workers", "| 10,000, extrapolated |", "| idle | 1 n | 0 % | linear, 100 % at 100 | 10,000 |", "### Laws over nodes\n\n| | law | deviation | dominant term |\n|---|---|---:|---|\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if fits := table.fits(axisWorkers, at, 100); fits[0].ExtrapolatedTo != 0 {
		t.Errorf("extrapolated to what was measured: %+v", fits)
	}
}
