package stats

import "math"

// Quantile interpolates between the two nearest of the sorted values; 0 without values.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// outside is the probability with which a quantile may lie on either side of its interval.
const outside = 0.025

// Ranks returns which of n sorted independent values, counted from 0, enclose their
// distribution's quantile q with 95 % confidence, whatever the distribution: the order
// statistics that a binomial count of smaller values rarely passes. A low of -1 or a high of
// n says that so few values have no bound on that side.
func Ranks(n int, q float64) (low, high int) {
	low, high = -1, n
	if n == 0 || q <= 0 || q >= 1 {
		return low, high
	}
	// below is the probability that at most k of n values are smaller than the quantile.
	below, term := 0.0, float64(n)*math.Log1p(-q)
	for k := range n {
		below += math.Exp(term)
		if below <= outside {
			low = k
		}
		if below >= 1-outside {
			return low, k
		}
		term += math.Log(float64(n-k)/float64(k+1)) + math.Log(q/(1-q))
	}
	return low, high
}
