package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Terms of a law, in ascending order.
const (
	termConstant  = "constant"
	termLinear    = "linear"
	termQuadratic = "quadratic"
)

// Term is one part of a law: Factor times 1, n or n².
type Term struct {
	Name   string  `json:"name"` // constant, linear or quadratic
	Factor float64 `json:"factor"`
}

func (t Term) at(n float64) float64 {
	switch t.Name {
	case termLinear:
		return t.Factor * n
	case termQuadratic:
		return t.Factor * n * n
	}
	return t.Factor
}

// Law is a cost as a sum of terms, none of them negative. Terms that the measurements do
// not show are left out.
type Law []Term

// At returns the cost at n.
func (l Law) At(n float64) float64 {
	sum := 0.0
	for _, t := range l {
		sum += t.at(n)
	}
	return sum
}

// Dominant returns the name of the largest term at n and its share of the cost; "" for a
// law without terms.
func (l Law) Dominant(n float64) (name string, share float64) {
	largest := 0.0
	for _, t := range l {
		if v := t.at(n); v > largest {
			name, largest = t.Name, v
		}
	}
	if largest > 0 {
		share = largest / l.At(n)
	}
	return name, share
}

// String returns the law as a formula of n.
func (l Law) String() string {
	var parts []string
	for _, t := range l {
		factor := number(t.Factor)
		if t.Factor < 100 {
			factor = strconv.FormatFloat(t.Factor, 'g', 3, 64)
		}
		parts = append(parts, factor+map[string]string{termLinear: " n", termQuadratic: " n²"}[t.Name])
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " + ")
}

// point is a cost that was measured at n.
type point struct{ n, cost float64 }

// leastDeviation is the relative deviation below which laws count as equally good, so that
// rounding does not choose between them.
const leastDeviation = 0.01

// leastPoints is the least number of points that show a law.
const leastPoints = 3

// fit returns the law that describes points best: non-negative least squares of the
// relative deviations. Since there are few terms, all sets of them are tried. A set with
// one more term has to reduce the deviation by as much as the Bayesian information criterion
// demands. deviation is the root of the mean square of what is left, relative. A law needs
// three points, and one point more than it has terms; fewer give none.
func fit(points []point) (law Law, deviation float64) {
	if len(points) < leastPoints {
		return nil, 0
	}
	names := []string{termConstant, termLinear, termQuadratic}
	best := math.Inf(1)
	for set := range 1 << len(names) {
		var l Law
		for i, name := range names {
			if set>>i&1 == 1 {
				l = append(l, Term{Name: name, Factor: 1})
			}
		}
		if len(l) == 0 || len(l) >= len(points) || !l.solve(points) {
			continue
		}
		d := l.deviation(points)
		count := float64(len(points))
		score := 2*count*math.Log(max(d, leastDeviation)) + float64(len(l))*math.Log(count)
		if score < best {
			best, law, deviation = score, l, d
		}
	}
	return law, deviation
}

// deviation returns the root of the mean square of the relative deviations.
func (l Law) deviation(points []point) float64 {
	sum, least := 0.0, leastCost(points)
	for _, p := range points {
		d := (l.At(p.n) - p.cost) / max(p.cost, least)
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(points)))
}

// leastCost is the cost from which deviations are relative to the cost itself: a point
// without cost must not count more than all others.
func leastCost(points []point) float64 {
	largest := 1e-9
	for _, p := range points {
		largest = max(largest, p.cost)
	}
	return largest / 100
}

// solve sets the factors to those of least squares. It returns false if one of them is not
// positive or cannot be told.
func (l Law) solve(points []point) bool {
	size, least := len(l), leastCost(points)
	m := make([][]float64, size) // normal equations, with the right-hand side in the last column
	for i := range m {
		m[i] = make([]float64, size+1)
		for _, p := range points {
			w := 1 / (max(p.cost, least) * max(p.cost, least))
			xi := Term{l[i].Name, 1}.at(p.n)
			for j := range size {
				m[i][j] += w * xi * Term{l[j].Name, 1}.at(p.n)
			}
			m[i][size] += w * xi * p.cost
		}
	}
	for i := range m { // the matrix is symmetric and positive: no pivoting
		if m[i][i] <= 0 {
			return false
		}
		for r := range m {
			if r == i {
				continue
			}
			by := m[r][i] / m[i][i]
			for c := i; c <= size; c++ {
				m[r][c] -= by * m[i][c]
			}
		}
	}
	for i := range l {
		l[i].Factor = m[i][size] / m[i][i]
		if !(l[i].Factor > 0) {
			return false
		}
	}
	return true
}

// Fit is the law of one figure over an axis.
type Fit struct {
	Figure string `json:"figure"` // with its unit
	Axis   string `json:"axis"`
	Law    Law    `json:"law"`
	// Deviation is the root of the mean square of the relative deviations.
	Deviation float64 `json:"deviation"`
	// At is the largest point that was measured, and Dominant the largest term there, with
	// its share.
	At       int     `json:"at"`
	Dominant string  `json:"dominant"`
	Share    float64 `json:"share"`
	// Extrapolated is what the law says about ExtrapolatedTo, which was not measured; both
	// are 0 if that says nothing.
	ExtrapolatedTo int     `json:"extrapolated_to,omitempty"`
	Extrapolated   float64 `json:"extrapolated,omitempty"`
}

// mostDeviation is the deviation above which a law says nothing.
const mostDeviation = 0.3

// fits returns a law for each row of a table whose columns are points of an axis, but for
// those that no law describes.
func (t Table) fits(axis string, at map[string]int, extrapolateTo int) (out []Fit) {
	for _, row := range t.Rows {
		var points []point
		f := Fit{Figure: row.Name, Axis: axis}
		for key, figure := range row.Figures {
			points = append(points, point{float64(at[key]), figure.Median})
			f.At = max(f.At, at[key])
		}
		if f.Law, f.Deviation = fit(points); len(f.Law) == 0 || f.Deviation > mostDeviation {
			continue
		}
		f.Dominant, f.Share = f.Law.Dominant(float64(f.At))
		if extrapolateTo > f.At {
			f.ExtrapolatedTo, f.Extrapolated = extrapolateTo, f.Law.At(float64(extrapolateTo))
		}
		out = append(out, f)
	}
	return out
}

// fitsMarkdown writes the laws of one axis as a table.
func fitsMarkdown(b *strings.Builder, fits []Fit) {
	for i, f := range fits {
		if i == 0 || f.Axis != fits[i-1].Axis {
			fmt.Fprintf(b, "\n### Laws over %s\n\n", f.Axis)
			b.WriteString("| | law | deviation | dominant term |")
			if f.ExtrapolatedTo > 0 {
				fmt.Fprintf(b, " %s, extrapolated |", group(strconv.Itoa(f.ExtrapolatedTo)))
			}
			b.WriteString("\n|---|---|---:|---|" + strings.Repeat("---:|", min(f.ExtrapolatedTo, 1)) + "\n")
		}
		fmt.Fprintf(b, "| %s | %s | %.0f %% | %s, %.0f %% at %s |", cell(f.Figure), f.Law, 100*f.Deviation, f.Dominant, 100*f.Share, group(strconv.Itoa(f.At)))
		if f.ExtrapolatedTo > 0 {
			fmt.Fprintf(b, " %s |", number(f.Extrapolated))
		}
		b.WriteString("\n")
	}
}
