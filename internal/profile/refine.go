package profile

import (
	"errors"
	"fmt"
	"math"
)

// Observed are steps of workers that serve, as the normal equations of relative errors
// ([Fit]): all that a least-squares fit needs of any number of them.
type Observed struct {
	Samples int `json:"samples"`
	// Gram are sums of products of the samples' features, Right those of features and seconds, and
	// Squares those of seconds; features and seconds are divided by the seconds that are predicted.
	Gram    [numFeatures][numFeatures]float64 `json:"gram"`
	Right   [numFeatures]float64              `json:"right"`
	Squares float64                           `json:"squares"`
}

// Observe adds up samples of steps, without Requests. It fails as [Fit] does.
func Observe(samples []Sample) (Observed, error) {
	_, e, err := rounds(samples)
	if err != nil {
		return Observed{}, err
	}
	o := Observed{Samples: len(samples), Squares: e.squares}
	for j := range o.Gram {
		copy(o.Gram[j][:], e.gram[j][:])
	}
	copy(o.Right[:], e.right[:])
	return o, nil
}

// error returns the root of the mean squared relative error of costs on the samples.
func (o Observed) error(c Costs) float64 {
	cost := c.all()
	sum := o.Squares
	for j := range cost {
		sum -= 2 * *cost[j] * o.Right[j]
		for k := range cost {
			sum += *cost[j] * *cost[k] * o.Gram[j][k]
		}
	}
	return math.Sqrt(max(sum, 0) / float64(o.Samples))
}

func (o Observed) validate() error {
	if o.Samples < 1 || o.Samples > maxCount {
		return fmt.Errorf("%w: there are %d", ErrSamples, o.Samples)
	}
	if !(o.Squares > 0 && o.Squares <= maxGram) {
		return fmt.Errorf("%w: their sums are no sums of steps", ErrSamples)
	}
	for j, row := range o.Gram {
		for k, v := range row {
			if math.IsNaN(v) || math.Abs(v) > maxGram || v != o.Gram[k][j] || row[j] < 0 {
				return fmt.Errorf("%w: their sums are no sums of steps", ErrSamples)
			}
		}
		if !(o.Right[j] >= 0 && o.Right[j] <= maxGram) {
			return fmt.Errorf("%w: their sums are no sums of steps", ErrSamples)
		}
	}
	return nil
}

// maxGram keeps sums of products finite.
const maxGram = 1e60

// RefineBound is how far [Refine] takes a cost from the measured one at most: to this many
// times it, or to this part of it.
const RefineBound = 4

// Refined says what [Refine] has changed.
type Refined struct {
	Costs Costs
	// Before and After are the roots of the mean squared relative errors on the observed steps, of
	// the measured costs and of the refined ones.
	Before, After float64
	// AtBound names the costs that observations would take further than the bound.
	AtBound []string
}

// Refine corrects measured costs by observed steps: it finds the costs with the least sum of
// squared relative errors on these, to which the square of each cost's own relative change is
// added as if it were one step more. So costs that the observed steps do not tell apart stay
// as measured, and those that many steps show follow these. No cost leaves the measured one
// by more than [RefineBound]; a measured cost of 0 stays.
func Refine(measured Costs, o Observed) (Refined, error) {
	if err := o.validate(); err != nil {
		return Refined{}, err
	}
	// Unknowns are the factors of the costs above zero. The sum of squares is convex, and its
	// minimum within the bounds is where some factors are at a bound and the others solve their
	// equations: all 3^n choices are tried.
	base := measured.all()
	b := box{}
	for j, v := range base {
		if *v > 0 {
			b.at = append(b.at, j)
		}
	}
	if len(b.at) == 0 {
		return Refined{}, errors.New("the measured profile has no costs of steps")
	}
	for r, j := range b.at {
		for c, k := range b.at {
			b.m[r][c] = *base[j] * o.Gram[j][k] * *base[k]
		}
		b.m[r][r]++
		b.right[r] = *base[j]*o.Right[j] + 1
	}
	factor := b.least(1.0/RefineBound, RefineBound)
	out := Refined{Costs: measured, Before: o.error(measured)}
	refined := out.Costs.all()
	for r, j := range b.at {
		*refined[j] = *base[j] * factor[r]
		if factor[r] == RefineBound || factor[r] == 1.0/RefineBound {
			out.AtBound = append(out.AtBound, costNames[j])
		}
	}
	out.After = o.error(out.Costs)
	return out, nil
}

// box is a least-squares problem with the same bounds for each unknown. Its matrix is
// positive definite.
type box struct {
	at    []int // which features the unknowns are of
	m     [numFeatures][numFeatures]float64
	right [numFeatures]float64
}

// least returns the unknowns between low and high with the least squared error.
func (b *box) least(low, high float64) (best [numFeatures]float64) {
	n := len(b.at)
	choices := 1
	for range n {
		choices *= 3
	}
	least := math.Inf(1)
	for choice := range choices {
		var x [numFeatures]float64
		var free []int
		for r, rest := 0, choice; r < n; r, rest = r+1, rest/3 {
			switch rest % 3 {
			case 0:
				free = append(free, r)
			case 1:
				x[r] = low
			case 2:
				x[r] = high
			}
		}
		if !b.solve(&x, free, low, high) {
			continue
		}
		if e := b.error(x); e < least {
			best, least = x, e
		}
	}
	return best
}

// solve finds the free unknowns beside the others, by Gaussian elimination. It is false where
// one is not within the bounds.
func (b *box) solve(x *[numFeatures]float64, free []int, low, high float64) bool {
	n := len(free)
	var m [numFeatures][numFeatures + 1]float64
	for r, j := range free {
		m[r][n] = b.right[j]
		for k := range b.at {
			m[r][n] -= b.m[j][k] * x[k] // free ones are still 0
		}
		for c, k := range free {
			m[r][c] = b.m[j][k]
		}
	}
	for p := range n {
		if m[p][p] <= 0 {
			return false // rounding has made it indefinite
		}
		for r := p + 1; r < n; r++ {
			f := m[r][p] / m[p][p]
			for c := p; c <= n; c++ {
				m[r][c] -= f * m[p][c]
			}
		}
	}
	for p := n - 1; p >= 0; p-- {
		v := m[p][n]
		for c := p + 1; c < n; c++ {
			v -= m[p][c] * x[free[c]]
		}
		v /= m[p][p]
		if !(v >= low && v <= high) {
			return false
		}
		x[free[p]] = v
	}
	return true
}

// error returns the squared error, less what does not depend on x.
func (b *box) error(x [numFeatures]float64) (sum float64) {
	for r := range b.at {
		sum -= 2 * x[r] * b.right[r]
		for c := range b.at {
			sum += x[r] * x[c] * b.m[r][c]
		}
	}
	return sum
}
