package predict

import "math"

// Orders that ARIMA tries. With more parameters the sum of squares has several minima.
const (
	maxAR     = 2
	maxDiff   = 1
	maxParams = 2 // autoregressive and moving average together
)

// ARIMA fits autoregressive integrated moving averages of the orders p+q <= 2 and d <= 1 by
// conditional least squares, and forecasts with the order of the least AICc. Fits that are
// not stationary or not invertible are left out.
//
// AICc: Hurvich and Tsai, Regression and time series model selection in small samples, 1989.
type ARIMA struct{}

// Name implements Predictor.
func (ARIMA) Name() string { return "arima" }

// Forecast implements Predictor. It needs five values; a constant series is continued
// without a fit.
func (ARIMA) Forecast(series []float64, n int) []float64 {
	y := filled(series)
	if len(y) < minFitted || n < 1 {
		return nil
	}
	if constant(y) {
		return repeated(y[0], n)
	}
	var best *arima
	for d := 0; d <= maxDiff; d++ {
		w := differenced(y, d)
		for p := 0; p <= maxAR; p++ {
			for q := 0; p+q <= maxParams; q++ {
				m := fitARIMA(w, p, d, q)
				if m != nil && (best == nil || m.aicc < best.aicc) {
					best = m
				}
			}
		}
	}
	if best == nil {
		return repeated(y[len(y)-1], n)
	}
	return best.forecast(y, n)
}

func differenced(y []float64, d int) []float64 {
	for range d {
		next := make([]float64, len(y)-1)
		for i := range next {
			next[i] = y[i+1] - y[i]
		}
		y = next
	}
	return y
}

// arima is a fitted model of w, y differenced d times:
// w[t] = c + sum ar[i] w[t-1-i] + e[t] + sum ma[j] e[t-1-j].
type arima struct {
	c      float64
	ar, ma []float64
	d      int
	aicc   float64
}

// fitARIMA returns nil when w is too short for the order or the fit is of no use. All orders
// are judged on the values after the first maxAR+maxDiff ones of y, so that their AICc compare.
func fitARIMA(w []float64, p, d, q int) *arima {
	from := maxAR + maxDiff - d
	count := len(w) - from
	params := 1 + p + q
	if count-params-2 <= 0 { // AICc divides by it; the variance is a parameter, too
		return nil
	}
	theta := make([]float64, params)
	theta[0] = mean(w)
	residuals, sum := cssResiduals(w, theta, p, from)
	damping := 1e-3
	for range 60 { // Levenberg-Marquardt; a linear model is done after one step
		step := lmStep(w, theta, p, from, residuals, damping)
		if step == nil {
			break
		}
		next := make([]float64, params)
		for i := range next {
			next[i] = theta[i] + step[i]
		}
		r, s := cssResiduals(w, next, p, from)
		if !(s < sum) {
			if damping *= 10; damping > 1e10 {
				break
			}
			continue
		}
		done := sum-s <= 1e-12*sum
		theta, residuals, sum = next, r, s
		damping = max(damping/10, 1e-12)
		if done {
			break
		}
	}
	m := &arima{c: theta[0], ar: theta[1 : 1+p], ma: theta[1+p:], d: d}
	if !stable(m.ar) || !stable(negated(m.ma)) {
		return nil
	}
	scale := 0.0
	for _, v := range w {
		scale += v * v
	}
	variance := max(sum, 1e-20*scale) / float64(count) // a perfect fit has no logarithm
	k := float64(params + 1)
	m.aicc = float64(count)*math.Log(variance) + 2*k + 2*k*(k+1)/(float64(count)-k-1)
	return m
}

// cssResiduals returns the one-step errors of w with those before from taken as 0, and the
// sum of their squares.
func cssResiduals(w, theta []float64, p, from int) ([]float64, float64) {
	e := make([]float64, len(w))
	sum := 0.0
	for t := from; t < len(w); t++ {
		v := w[t] - theta[0]
		for i := range p {
			v -= theta[1+i] * w[t-1-i]
		}
		for j, ma := range theta[1+p:] {
			if t-1-j >= from {
				v -= ma * e[t-1-j]
			}
		}
		e[t] = v
		sum += v * v
	}
	return e, sum
}

// lmStep returns the damped Gauss-Newton step, nil when it has none. Derivatives are
// recursive: de[t]/dx depends on earlier ones by the moving average.
func lmStep(w, theta []float64, p, from int, e []float64, damping float64) []float64 {
	params := len(theta)
	a := make([][]float64, params)
	for i := range a {
		a[i] = make([]float64, params+1)
	}
	ma := theta[1+p:]
	grads := make([][]float64, len(w))
	for t := from; t < len(w); t++ {
		g := make([]float64, params)
		g[0] = -1
		for i := range p {
			g[1+i] = -w[t-1-i]
		}
		for j := range ma {
			if t-1-j >= from {
				g[1+p+j] = -e[t-1-j]
			}
		}
		for j, c := range ma {
			if t-1-j >= from {
				for i := range g {
					g[i] -= c * grads[t-1-j][i]
				}
			}
		}
		grads[t] = g
		for i := range g {
			for k := range g {
				a[i][k] += g[i] * g[k]
			}
			a[i][params] -= g[i] * e[t]
		}
	}
	for i := range a {
		a[i][i] *= 1 + damping
	}
	return solve(a)
}

// solve solves the linear system of the rows (coefficients, right side) in place. It
// returns nil when the system is singular.
func solve(a [][]float64) []float64 {
	n := len(a)
	for col := range n {
		pivot := col
		for r := col + 1; r < n; r++ {
			if math.Abs(a[r][col]) > math.Abs(a[pivot][col]) {
				pivot = r
			}
		}
		a[col], a[pivot] = a[pivot], a[col]
		if !(math.Abs(a[col][col]) > 1e-300) {
			return nil
		}
		for r := col + 1; r < n; r++ {
			f := a[r][col] / a[col][col]
			for k := col; k <= n; k++ {
				a[r][k] -= f * a[col][k]
			}
		}
	}
	x := make([]float64, n)
	for r := n - 1; r >= 0; r-- {
		v := a[r][n]
		for k := r + 1; k < n; k++ {
			v -= a[r][k] * x[k]
		}
		x[r] = v / a[r][r]
	}
	return x
}

// stable reports whether x[t] = sum c[i] x[t-1-i] dies out; order 2 at most.
func stable(c []float64) bool {
	switch len(c) {
	case 0:
		return true
	case 1:
		return math.Abs(c[0]) < 1
	default:
		return math.Abs(c[1]) < 1 && c[1]+c[0] < 1 && c[1]-c[0] < 1
	}
}

func negated(c []float64) []float64 {
	out := make([]float64, len(c))
	for i, v := range c {
		out[i] = -v
	}
	return out
}

// forecast continues y: future errors are 0.
func (m *arima) forecast(y []float64, n int) []float64 {
	w := differenced(y, m.d)
	from := maxAR + maxDiff - m.d
	theta := append(append([]float64{m.c}, m.ar...), m.ma...)
	e, _ := cssResiduals(w, theta, len(m.ar), from)
	out := make([]float64, n)
	last := y[len(y)-1]
	for k := range out {
		v := m.c
		for i, c := range m.ar {
			v += c * w[len(w)-1-i]
		}
		for j, c := range m.ma {
			v += c * e[len(e)-1-j]
		}
		w, e = append(w, v), append(e, 0)
		if m.d > 0 {
			v += last
		}
		last = v
		out[k] = clamped(v)
	}
	return out
}
