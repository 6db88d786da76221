package engine

import (
	"math"
	"time"
)

// stepWork holds the quantities that the duration of a step depends on.
type stepWork struct {
	decodes       int // entries of one token: decoding sequences, their drafts
	decodeContext int // positions that those attend to, summed
	tokens        int // in longer entries: chunks of prompts
	chunkContext  int // positions that each of these tokens attends to, summed
}

// add counts an entry of n tokens that begins at position start.
func (w *stepWork) add(start, n int) {
	if n == 1 {
		w.decodes++
		w.decodeContext += start + 1
		return
	}
	w.tokens += n
	w.chunkContext += chunkContext(start, n)
}

// chunkContext returns how many positions n tokens from start on attend to, summed.
func chunkContext(start, n int) int { return n*start + n*(n+1)/2 }

// The features of a step, by their place in the cost of a model.
const (
	perStep          = iota // reading the weights, mostly
	perDecode               // an entry of one token
	perDecodeContext        // a position that it attends to: reading KV
	perToken                // a token of a chunk
	perChunkContext         // a position that such a token attends to: scores and sums
	numFeatures
)

func (w *stepWork) features() [numFeatures]float64 {
	return [numFeatures]float64{1, float64(w.decodes), float64(w.decodeContext), float64(w.tokens), float64(w.chunkContext)}
}

// stepModel predicts how long a step computes, in seconds. It sums the features of the
// step's work, each times its cost, and multiplies by the speed of the device. The zero
// value has learned nothing.
//
// Speed and costs are learned apart, because the speed of the whole device changes most
// often. The speed follows each step quickly: if decode steps meet a busy neighbor, the
// next chunk gets smaller. Costs belong to the model and the machine. A Kalman filter
// estimates them with relative errors, so that short steps count as much as long ones. It
// separates costs that mostly occur together, such as those of tokens and of their
// context. Variances have a lower and an upper bound. So the filter stays able to learn
// and does not drift while all steps are alike.
type stepModel struct {
	cost     [numFeatures]float64 // seconds for one unit
	variance [numFeatures][numFeatures]float64
	slow     float64 // factor on all costs at present
	unit     float64 // seconds of the unit of priorCost, by the first step
	steps    int     // that it learned from
	// spread is the recent mean relative error of predictions, 0 to 1.
	spread float64
}

const (
	// speedFade is the share of the speed that fades with each step, so that a lasting
	// change of speed moves into the costs that steps show. It also limits a slow drift:
	// while all steps are alike, errors do not tell whether costs or speed changed, and
	// costs that do not occur in them follow the speed.
	speedGain, speedFade = 0.3, 1e-3
	spreadGain           = 0.1
	// mostOff bounds the logarithm of the factor that one step may teach. A step that was
	// held up then teaches no more than one that took twice as long.
	mostOff = 0.7
	// usualNoise is the relative error of any step. costDrift is the change of costs from
	// step to step, and doubt the deviation of costs from the assumed ones, both as
	// shares.
	usualNoise, costDrift, doubt = 0.1, 0.01, 2
	// Durations outside of these bounds are clamped.
	leastSeconds, mostSeconds = 1e-9, 1e5
)

// priorCost is the ratio of costs assumed before the first step, in units of one reading
// of the weights. The first step sets the scale. Chunks are assumed to be expensive, so
// that the first ones are rather too small.
var priorCost = [numFeatures]float64{perStep: 1, perDecode: 1. / 16, perDecodeContext: 1e-4, perToken: 1. / 8, perChunkContext: 3e-5}

// costs returns the seconds for one unit of each feature. Before the first step the scale
// is unknown.
func (m *stepModel) costs() (c [numFeatures]float64) {
	if m.steps == 0 {
		return priorCost
	}
	for j := range c {
		c[j] = m.cost[j] * m.slow
	}
	return c
}

// predict returns the seconds that a step with work w computes.
func (m *stepModel) predict(w *stepWork) float64 {
	return dot(w.features(), m.costs())
}

func dot(x, y [numFeatures]float64) (sum float64) {
	for j := range x {
		sum += x[j] * y[j]
	}
	return sum
}

// learn updates the model with a step of work w that computed for the duration took.
func (m *stepModel) learn(w *stepWork, took time.Duration) {
	seconds := min(max(took.Seconds(), leastSeconds), mostSeconds)
	predicted := m.predict(w)
	m.steps++
	if m.steps == 1 {
		m.unit, m.slow, m.spread = max(seconds/predicted, leastSeconds), 1, 0.5
		for j := range m.cost {
			m.cost[j] = priorCost[j] * m.unit
			m.variance[j][j] = m.mostVariance(j)
		}
		return
	}
	off := math.Log(seconds / predicted)
	m.spread += spreadGain * (min(math.Abs(off), 1) - m.spread)
	off = min(max(off, -mostOff), mostOff)
	m.correct(w.features(), predicted/m.slow, (1-speedGain)*off)
	m.slow = math.Exp((1-speedFade)*math.Log(m.slow) + speedGain*off)
	if m.slow > mostSlow || m.slow < 1/mostSlow {
		m.rebase()
	}
}

// mostSlow bounds how far the speed may move from the one that the costs were learned at.
// Beyond it, the first steps set a wrong scale, or the machine has changed.
const mostSlow = 16

// rebase multiplies the present speed into the costs.
func (m *stepModel) rebase() {
	f := min(max(m.slow, leastSeconds/m.unit), mostSeconds/m.unit)
	m.unit *= f
	for j := range m.cost {
		m.cost[j] *= f
		for i := range m.cost {
			m.variance[j][i] *= f * f
		}
	}
	m.slow = 1
}

// correct is one step of the filter: what costs predict for features x was wrong by a
// factor, whose logarithm is off. It is the same error that the speed follows. Were
// it another, of which one is zero on average when the other is not, then costs and
// speed would run away from each other while steps are all alike.
func (m *stepModel) correct(x [numFeatures]float64, predicted, off float64) {
	var px [numFeatures]float64 // variance times x
	noise := usualNoise * usualNoise
	for j := range x {
		x[j] /= predicted // from here on the prediction is 1
		m.variance[j][j] += m.drift(j)
	}
	for j := range x {
		px[j] = dot(m.variance[j], x)
	}
	own := dot(px, x)
	noise += own
	// The prediction changes by the factor exp(share × off), again as for the speed.
	share := own / noise
	change := math.Expm1(share*off) / share
	for j := range x {
		gain := px[j] / noise
		m.cost[j] = max(m.cost[j]+gain*change, leastShare*priorCost[j]*m.unit)
		for i := range x {
			m.variance[j][i] -= gain * px[i]
		}
	}
	for j := range x {
		m.variance[j][j] = max(m.variance[j][j], m.drift(j)) // rounding adds up over millions of steps
		if v, most := m.variance[j][j], m.mostVariance(j); v > most {
			f := math.Sqrt(most / v)
			for i := range x {
				m.variance[j][i] *= f
				m.variance[i][j] *= f
			}
		}
	}
}

// leastShare is the lower bound of a cost, as a share of the assumed one.
const leastShare = 1e-3

// drift returns the variance of a cost's change from one step to the next.
func (m *stepModel) drift(j int) float64 {
	d := costDrift * priorCost[j] * m.unit
	return d * d
}

func (m *stepModel) mostVariance(j int) float64 {
	d := doubt * priorCost[j] * m.unit
	return d * d
}

// chunk returns the seconds that n tokens of a prompt from start on add to a step.
func (m *stepModel) chunk(start, n int) float64 {
	cost := m.costs()
	return cost[perToken]*float64(n) + cost[perChunkContext]*float64(chunkContext(start, n))
}

// fit returns how many tokens from start on, at most n, add no more than the given
// seconds.
func (m *stepModel) fit(start, n int, seconds float64) int {
	if seconds <= 0 {
		return 0
	}
	if m.chunk(start, n) <= seconds {
		return n
	}
	// chunk is c·n + q·n², with both above zero.
	cost := m.costs()
	q := cost[perChunkContext] / 2
	c := cost[perToken] + cost[perChunkContext]*(float64(start)+0.5)
	root := 2 * seconds / (c + math.Sqrt(c*c+4*q*seconds))
	return min(int(root+1e-6), n) // so that a chunk fits into the time predicted for it
}

// decode returns the seconds that one more entry of one token adds to a step.
func (m *stepModel) decode(start int) float64 {
	cost := m.costs()
	return cost[perDecode] + cost[perDecodeContext]*float64(start+1)
}
