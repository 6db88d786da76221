package planner

import (
	"math"
	"math/rand/v2"

	core "github.com/dynctl/dynctl/internal/planner"
)

// Load is a number of requests over time.
type Load struct {
	Name     string
	Seconds  float64
	Rate     func(t float64) float64 // requests a second
	ISL, OSL int                     // means
	Spread   float64                 // of the lengths: standard deviation of their logarithm; 0: all equal
}

// Arrival is a request to come.
type Arrival struct {
	At float64
	core.Length
}

// Arrivals draws a Poisson process of varying rate by thinning, and lengths that are log-normal.
func (l Load) Arrivals(seed uint64) []Arrival {
	r := rand.New(rand.NewPCG(seed, 1))
	most := 0.0
	for t := 0.0; t < l.Seconds; t++ {
		most = max(most, l.Rate(t))
	}
	length := func(mean int) int {
		return max(1, int(float64(mean)*math.Exp(l.Spread*r.NormFloat64()-l.Spread*l.Spread/2)))
	}
	var out []Arrival
	for t := r.ExpFloat64() / most; t < l.Seconds; t += r.ExpFloat64() / most {
		if r.Float64()*most < l.Rate(t) {
			out = append(out, Arrival{t, core.Length{ISL: min(length(l.ISL), 32*l.ISL), OSL: min(length(l.OSL), 8*l.OSL)}})
		}
	}
	return out
}

// Loads are the shapes that policies are compared on.
func Loads() []Load {
	const hour = 3600
	shape := func(name string, rate func(t float64) float64) Load {
		return Load{Name: name, Seconds: hour, Rate: rate, ISL: 3000, OSL: 300, Spread: 0.4}
	}
	between := func(low, high, share float64) float64 { return low + (high-low)*share }
	return []Load{
		shape("8 req/s", func(float64) float64 { return 8 }),
		shape("18 req/s", func(float64) float64 { return 18 }),
		shape("step 8 to 18", func(t float64) float64 {
			if t < hour/3 {
				return 8
			}
			return 18
		}),
		shape("spike 8 to 30", func(t float64) float64 {
			if t >= 1500 && t < 1680 {
				return 30
			}
			return 8
		}),
		shape("ramp 5 to 40", func(t float64) float64 { return between(5, 40, t/hour) }),
		shape("sine 5 to 45", func(t float64) float64 { return 25 + 20*math.Sin(2*math.Pi*t/600) }),
		{
			Name: "diurnal 5 to 35", Seconds: 2 * hour, ISL: 3000, OSL: 300, Spread: 0.4,
			Rate: func(t float64) float64 { return between(5, 35, math.Pow(math.Sin(math.Pi*t/(2*hour)), 2)) },
		},
	}
}
