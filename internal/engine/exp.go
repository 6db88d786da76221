package engine

import "math"

// expTable holds 2^(i/expSteps) as bits of a float64.
var expTable = func() (t [expSteps]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / expSteps))
	}
	return t
}()

const (
	expSteps = 2048
	// expHigh + expLow is ln 2 / expSteps; products of expHigh with whole numbers below
	// 2^21 are exact.
	expHigh = 0x1.62e42fep-12
	expLow  = math.Ln2/expSteps - expHigh
	// roundHalf moves a sum's whole part into its lowest bits.
	roundHalf = 0x1.8p52
	// leastExp is about where exp leaves the normal numbers.
	leastExp = -700
)

// exp returns e^x for leastExp <= x <= 0, off by at most two units in the last place. It
// does a third of the work of math.Exp, which is a call. It gives the same bits on all
// machines, because products are rounded before they are added.
func exp(x float64) float64 {
	k := float64(x*(expSteps/math.Ln2)) + roundHalf
	n := math.Float64bits(k)
	k -= roundHalf
	r := x - float64(k*expHigh) - float64(k*expLow) // at most ln 2 / (2·expSteps)
	s := math.Float64frombits(expTable[n%expSteps] + n/expSteps<<52)
	return s + float64(s*(r+float64(float64(r*r)*(0.5+float64(r*(1./6))))))
}

// wide converts a float32 that is not a NaN. Infinite values become finite values beyond
// all others; subnormal numbers become other numbers below 2^-126. The processor's own
// conversion leaves half of its register alone, so each iteration of a loop would wait
// for the one before.
func wide(l float32) float64 {
	b := uint64(math.Float32bits(l))
	return math.Float64frombits(b&0x7fffffff<<29 + (1023-127)<<52 | b>>31<<63)
}
