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
}

func (s Sample) features() [numFeatures]float64 {
	x := s.Work.features()
	x[0] = float64(max(s.Steps, 1))
	return x
}

// predict returns the seconds of the sample's steps.
func (c Costs) predict(s Sample) float64 {
	return c.StepSeconds(s.Work) + c.Step*float64(max(s.Steps, 1)-1)
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
// With five costs there are 31 sets of those above zero. The least squares of each set are
// solved by their normal equations, and the best solution without a negative cost wins. It
// is the exact minimum, since the best costs under the bound are the least squares of those
// that are above it (Lawson and Hanson, Solving Least Squares Problems, chapter 23).
func Fit(samples []Sample) (Costs, Quality, error) {
	expected := make([]float64, len(samples))
	for i, s := range samples {
		if !(s.Seconds > 0 && s.Seconds <= maxSeconds) {
			return Costs{}, Quality{}, fmt.Errorf("%w: step %d takes %v seconds", ErrSamples, i, s.Seconds)
		}
		expected[i] = s.Seconds
	}
	var c Costs
	var e equations
	for range fitRounds {
		var ok bool
		if c, e, ok = fit(samples, expected); !ok {
			return Costs{}, Quality{}, fmt.Errorf("%w: there are %d", ErrSamples, len(samples))
		}
		for i, s := range samples {
			// A sample of work that costs almost nothing, by chance or since it says nothing, would
			// else decide alone.
			expected[i] = max(c.predict(s), s.Seconds/maxWeight)
		}
	}
	return c, c.quality(samples, &e), nil
}

const (
	fitRounds = 6 // costs change by less than a thousandth of the noise after
	maxWeight = 4 // of a sample, over that by what was measured
)

// fit finds the costs with the least squares of errors that are relative to the expected seconds
// of each sample.
func fit(samples []Sample, expected []float64) (c Costs, e equations, ok bool) {
	for i, s := range samples {
		e.add(s.features(), s.Seconds, expected[i])
	}
	cost, ok := e.best()
	for j, v := range c.all() {
		*v = cost[j]
	}
	return c, e, ok
}

// equations are the normal equations of relative errors: rows are features, and right sides
// measured seconds, both divided by what is expected.
type equations struct {
	gram    [numFeatures][numFeatures]float64
	right   [numFeatures]float64
	squares float64 // of the right sides
}

func (e *equations) add(x [numFeatures]float64, seconds, expected float64) {
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
}

// best returns the costs with the least error among all sets of features that have a
// solution without negative costs. Of equal ones the smallest set wins.
func (e *equations) best() (best [numFeatures]float64, found bool) {
	sets := make([]uint, 0, 1<<numFeatures-1)
	for set := uint(1); set < 1<<numFeatures; set++ {
		sets = append(sets, set)
	}
	slices.SortStableFunc(sets, func(a, b uint) int { return bits.OnesCount(a) - bits.OnesCount(b) })
	least := math.Inf(1)
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
	}
	return best, found
}

// singular is the pivot, relative to 1, below which a feature is a sum of others.
const singular = 1e-12

// solve returns the least squares of a set of features by Gaussian elimination; ok is false
// if there is no single solution, or one with negative costs.
func (e *equations) solve(set uint) (cost [numFeatures]float64, ok bool) {
	var at []int
	for j := range numFeatures {
		if set>>j&1 == 1 {
			if e.gram[j][j] <= 0 {
				return cost, false // never seen
			}
			at = append(at, j)
		}
	}
	n := len(at)
	var m [numFeatures][numFeatures + 1]float64 // scaled so that the diagonal is 1
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

func (c Costs) quality(samples []Sample, e *equations) Quality {
	q := Quality{Samples: len(samples)}
	errs := make([]float64, len(samples))
	for i, s := range samples {
		off := c.predict(s)/s.Seconds - 1
		q.Bias += off / float64(len(samples))
		errs[i] = math.Abs(off)
		q.MeanError += errs[i] / float64(len(samples))
	}
	slices.Sort(errs)
	q.P95Error = errs[min(len(errs)-1, len(errs)*95/100)]
	for j, name := range [numFeatures]string{"step_s", "decode_s", "decode_context_s", "token_s", "chunk_context_s"} {
		if e.gram[j][j] == 0 {
			q.Unseen = append(q.Unseen, name)
		}
	}
	return q
}
