package profile

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Sample is a step that was measured, or several whose work and seconds are added up.
type Sample struct {
	Work    Work
	Seconds float64
	Steps   int // 0 means 1
	// Requests are those whose time is measured from end to end, with what they take beside their steps.
	Requests int
}

// numUnknowns are the costs of steps, and behind them what a request takes beside its steps.
const numUnknowns = numFeatures + 1

func (s Sample) features() (x [numUnknowns]float64) {
	work := s.Work.features()
	copy(x[:], work[:])
	x[0], x[numFeatures] = float64(max(s.Steps, 1)), float64(s.Requests)
	return x
}

// unknowns are the values of what the features of samples cost.
type unknowns [numUnknowns]float64

// costs returns those of steps.
func (u unknowns) costs() (c Costs) {
	for j, v := range c.all() {
		*v = u[j]
	}
	return c
}

// predict returns the seconds of a sample.
func (u unknowns) predict(s Sample) (sum float64) {
	for j, x := range s.features() {
		sum += x * u[j]
	}
	return sum
}

// Quality says how well costs describe the steps that they were found from. Errors are
// relative: predicted less measured, as a share of measured.
type Quality struct {
	Samples   int     `json:"samples"`
	MeanError float64 `json:"mean_error"` // mean of the absolute values
	P95Error  float64 `json:"p95_error"`  // 95 % of the absolute values are at most this
	Bias      float64 `json:"bias"`       // mean of the errors with their signs
	// Unseen are the costs that no sample shows: they are 0.
	Unseen []string `json:"unseen,omitempty"`
}

// ErrSamples is returned by [Fit] for samples from which nothing follows: none, or one whose
// duration is not above zero.
var ErrSamples = errors.New("no costs follow from the samples")

// Fit finds the costs that describe measured steps best: the least sum of squared relative
// errors, with no cost below zero. A short step counts as much as a long one.
//
// Errors are relative to what is predicted, which takes some rounds: each weighs samples by the
// costs of the round before, the first one by what was measured. With a relative error of
// deviation s that came by chance, costs by errors relative to what was measured would be 2s² too
// low, since a sample that is short by chance would weigh more than one that is long (McCullagh and
// Nelder, Generalized Linear Models, chapter 9: constant coefficient of variation).
//
// The samples are of steps alone: for some with Requests see [FitRequests].
func Fit(samples []Sample) (Costs, Quality, error) {
	c, _, q, err := FitRequests(samples)
	return c, q, err
}

// FitRequests is [Fit] for samples of steps and of whole requests. request is the seconds that
// a request takes beside its steps.
//
// With six unknowns there are 63 sets of those above zero. The least squares of each set are
// solved by their normal equations, and the best solution without a negative cost wins. It
// is the exact minimum, since the best costs under the bound are the least squares of those
// that are above it (Lawson and Hanson, Solving Least Squares Problems, chapter 23).
func FitRequests(samples []Sample) (c Costs, request float64, q Quality, err error) {
	found, e, err := rounds(samples)
	if err != nil {
		return Costs{}, 0, Quality{}, err
	}
	return found.costs(), found[numFeatures], found.quality(samples, &e), nil
}

// rounds finds what samples cost, and the equations of the last round.
func rounds(samples []Sample) (found unknowns, e equations, err error) {
	expected := make([]float64, len(samples))
	for i, s := range samples {
		if !(s.Seconds > 0 && s.Seconds <= maxSeconds) {
			return found, e, fmt.Errorf("%w: step %d takes %v seconds", ErrSamples, i, s.Seconds)
		}
		expected[i] = s.Seconds
	}
	for range fitRounds {
		var ok bool
		if found, e, ok = fit(samples, expected); !ok {
			return found, e, fmt.Errorf("%w: there are %d", ErrSamples, len(samples))
		}
		for i, s := range samples {
			// A sample of work that costs almost nothing, by chance or since it says nothing, would
			// else decide alone.
			expected[i] = max(found.predict(s), s.Seconds/maxWeight)
		}
	}
	return found, e, nil
}

// fit finds what samples cost with the least squares of errors that are relative to the expected
// seconds of each sample.
func fit(samples []Sample, expected []float64) (found unknowns, e equations, ok bool) {
	for i, s := range samples {
		e.add(s.features(), s.Seconds, expected[i])
	}
	found, ok = e.best()
	return found, e, ok
}

const (
	fitRounds = 6 // costs change by less than a thousandth of the noise after
	maxWeight = 4 // of a sample, over that by what was measured
)

// equations are the normal equations of relative errors: rows are features, and right sides
// measured seconds, both divided by what is expected.
type equations struct {
	gram    [numUnknowns][numUnknowns]float64
	right   [numUnknowns]float64
	squares float64 // of the right sides
	n       int
}

func (e *equations) add(x [numUnknowns]float64, seconds, expected float64) {
	y := seconds / expected
	for j := range x {
		x[j] /= expected
	}
	for j := range x {
		e.right[j] += x[j] * y
		for k := range x {
			e.gram[j][k] += x[j] * x[k]
		}
	}
	e.squares += y * y
	e.n++
}

// best returns the costs with the least error among all sets of features that have a
// solution without negative costs. Of equal ones the smallest set wins.
//
// All work takes time. Where prompts and tokens of answers come in the same proportion, chance says
// which of them seems to take none. Of the sets whose error is no more than chance makes of the
// least one, those come first with which all that was seen takes time.
func (e *equations) best() (best unknowns, found bool) {
	sets := make([]uint, 0, 1<<numUnknowns-1)
	for set := uint(1); set < 1<<numUnknowns; set++ {
		sets = append(sets, set)
	}
	slices.SortStableFunc(sets, func(a, b uint) int { return bits.OnesCount(a) - bits.OnesCount(b) })
	least, leastWhole := math.Inf(1), math.Inf(1)
	var whole unknowns // the best with which all takes time
	for _, set := range sets {
		cost, ok := e.solve(set)
		if !ok {
			continue
		}
		err := e.squares
		for j := range cost {
			err -= cost[j] * e.right[j] // the squared error of least squares, by their equations
		}
		if err < least-1e-12*e.squares {
			best, least, found = cost, err, true
		}
		if e.allTakesTime(cost) && err < leastWhole-1e-12*e.squares {
			whole, leastWhole = cost, err
		}
	}
	if chance := fitSigma * fitSigma * least / float64(max(e.n-1, 1)); leastWhole <= least+chance {
		best = whole
	}
	return best, found
}

// fitSigma is by how many standard deviations a set must be worse to be worse.
const fitSigma = 3

// allTakesTime reports whether each kind of work that was seen takes time: tokens of answers, and prompts.
func (e *equations) allTakesTime(u unknowns) bool {
	part := func(of ...int) (sum float64) {
		for _, j := range of {
			sum += u[j] * e.right[j]
		}
		return sum
	}
	least := leastPart * e.squares
	decodes, prompts := e.gram[1][1] > 0, e.gram[3][3] > 0
	return (!decodes || part(0, 1, 2) >= least) && (!prompts || part(0, 3, 4) >= least)
}

// leastPart is the part of all time that is some time.
const leastPart = 0.01

// singular is the pivot, relative to 1, below which a feature is a sum of others.
const singular = 1e-12

// solve returns the least squares of a set of features by Gaussian elimination; ok is false
// if there is no single solution, or one with negative costs.
func (e *equations) solve(set uint) (cost unknowns, ok bool) {
	var at []int
	for j := range numUnknowns {
		if set>>j&1 == 1 {
			if e.gram[j][j] <= 0 {
				return cost, false // never seen
			}
			at = append(at, j)
		}
	}
	n := len(at)
	var m [numUnknowns][numUnknowns + 1]float64 // scaled so that the diagonal is 1
	scale := func(j int) float64 { return math.Sqrt(e.gram[j][j]) }
	for r, j := range at {
		for c, k := range at {
			m[r][c] = e.gram[j][k] / scale(j) / scale(k)
		}
		m[r][n] = e.right[j] / scale(j)
	}
	for p := range n {
		if m[p][p] < singular { // the matrix is positive definite: no rows need to be exchanged
			return cost, false
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
			v -= m[p][c] * cost[at[c]] * scale(at[c])
		}
		if v /= m[p][p]; v < 0 {
			return cost, false
		}
		cost[at[p]] = v / scale(at[p])
	}
	return cost, true
}

func (u unknowns) quality(samples []Sample, e *equations) Quality {
	q := Quality{Samples: len(samples)}
	errs := make([]float64, len(samples))
	for i, s := range samples {
		off := u.predict(s)/s.Seconds - 1
		q.Bias += off / float64(len(samples))
		errs[i] = math.Abs(off)
		q.MeanError += errs[i] / float64(len(samples))
	}
	slices.Sort(errs)
	q.P95Error = errs[min(len(errs)-1, len(errs)*95/100)]
	for j, name := range costNames {
		if e.gram[j][j] == 0 {
			q.Unseen = append(q.Unseen, name)
		}
	}
	return q
}
