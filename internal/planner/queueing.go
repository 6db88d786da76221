package planner

import (
	"errors"
	"math"
	"time"
)

// Queueing evaluates plans by queueing theory, over the distribution of lengths.
//
// Prefill is a queue M/G/c of the prompts that leave decode workers: Erlang's C gives the share
// that waits, the approximation of Lee and Longton the mean wait, and those who wait do so for an
// exponential time (exact for M/M/c, and in heavy traffic for M/G/c). Decode is a processor that all
// sequences share: its KV use is the fixed point of Little's law and of ITL as a function of KV use,
// and varies as in M/G/infinity. Decode workers that compute prompts do so in chunks between steps.
//
// With LeastDelay decode workers compute the shortest prompts, up to the length at which neither place has
// the smaller delay.
type Queueing struct {
	Performance Performance
	Target      Target
	// Chunk is the prompt tokens that a decode worker computes beside one decode step; 0: 2048.
	Chunk int
	// MaxSeqs is the sequences that a decode worker runs at a time; 0: as many as its KV has room for.
	MaxSeqs int
	// LeastDelay says that each prompt is computed where it delays itself and others least
	// (disagg.conditional), whatever Plan.MaxLocalPrefill is.
	LeastDelay bool
	// Handover is the time from the end of a remote prefill to the first decode step.
	Handover time.Duration
}

const (
	defaultChunk = 2048
	// lifeAverage is the share of the variance of KV use that is left in its mean over the
	// life of a sequence, when all live equally long: the mean of 1-|s-t| over the unit square.
	lifeAverage = 2.0 / 3
	gridPoints  = 64
)

// ErrNoLengths is returned for a forecast of requests whose lengths are unknown.
var ErrNoLengths = errors.New("no lengths of requests to plan on")

// ErrNoWorkers is returned for a plan that no request can pass through.
var ErrNoWorkers = errors.New("a plan without decode workers serves nothing")

// Evaluate implements Evaluator.
func (q Queueing) Evaluate(plan Plan, f Forecast) (Outcome, error) {
	if f.Rate <= 0 {
		return Outcome{}, nil
	}
	if len(f.Lengths) == 0 {
		return Outcome{}, ErrNoLengths
	}
	if plan.Decode == 0 {
		return Outcome{}, ErrNoWorkers
	}
	b := bins(f.Lengths, lengthBins)
	d, local, remote := q.settle(plan, f, b)

	out := Outcome{PrefillLoad: remote.load, DecodeLoad: max(d.load, local.load)}
	miss := func(t float64) float64 { return remote.share*remote.beyond(t) + local.share*local.beyond(t) }
	allowed := 1 - q.Target.Percentile
	out.MissTTFT = miss(q.Target.TTFT.Seconds())
	if d.load >= 1 { // KV blocks are full for good, and requests wait for them
		out.MissTTFT = 1
	}
	out.TTFT = seconds(quantile(miss, allowed, f.Horizon.Seconds()))
	out.MissITL = d.beyond(q.Target.ITL.Seconds())
	// Near the limit, what varies upwards finds no end: no longer than the load lasts.
	out.ITL = seconds(min(d.mean+normalQuantile(q.Target.Percentile)*d.deviation, max(f.Horizon.Seconds(), 1)))
	out.Miss = 1 - (1-out.MissTTFT)*(1-out.MissITL)
	return out, nil
}

// splitSteps is how often the share of local prompts is halved: to within a two-hundredth.
const splitSteps = 8

// settle returns the state that workers and queues settle in.
func (q Queueing) settle(plan Plan, f Forecast, b []Length) (d decodeState, local, remote promptQueue) {
	at := func(share float64) (d decodeState, local, remote promptQueue) {
		here := make([]float64, len(b)) // b is in order of the tokens to compute
		for i, l := range b {
			switch {
			case plan.Aggregated():
				here[i] = 1
			case q.LeastDelay:
				here[i] = min(1, max(0, share*float64(len(b))-float64(i)))
			case l.uncached() <= plan.MaxLocalPrefill:
				here[i] = 1
			}
		}
		d = q.decode(plan, f, b, here)
		local, remote = q.prompts(plan, f, b, d, here)
		return d, local, remote
	}
	last := func(share float64) Length { return b[min(int(share*float64(len(b))), len(b)-1)] }
	if !q.LeastDelay || plan.Aggregated() {
		return at(0)
	}
	low, high := 0.0, 1.0
	if d, local, remote = at(low); !q.laterThere(f, last(low), d, local, remote) {
		return d, local, remote
	}
	if d, local, remote = at(high); q.laterThere(f, last(high), d, local, remote) {
		return d, local, remote
	}
	for range splitSteps {
		middle := (low + high) / 2
		if d, local, remote = at(middle); q.laterThere(f, last(middle), d, local, remote) {
			low = middle
		} else {
			high = middle
		}
	}
	return d, local, remote
}

// laterThere reports whether one more prompt of a length causes more delay at a prefill worker than at a decode worker, by
// the product's rule (router.DecidePrefill, least-delay): it waits, and about as many prompts as wait now wait
// for it. Wait and transfer weigh as the share of free KV of a decode worker squared.
func (q Queueing) laterThere(f Forecast, l Length, d decodeState, local, remote promptQueue) bool {
	service, capacity := q.service(l, f), q.Performance.KVCapacity()
	own := min(1, float64(l.uncached())/capacity)
	room := max(0, 1-d.kv/capacity-own)
	room *= room
	here := room*local.wait(f) + service*(1+local.prompts(f))
	there := (remote.wait(f) + service + q.Handover.Seconds() + service*remote.prompts(f)) * (room + own*(1-room))
	return there > here
}

// decodeState is the state that decode workers settle in.
type decodeState struct {
	kv        float64 // tokens of KV in use by a worker
	step      float64 // seconds of a step without prompts
	mean      float64 // seconds between tokens, with prompts in between
	deviation float64 // between requests
	load      float64 // share of the highest rate that the workers can keep up
}

func (d decodeState) beyond(target float64) float64 {
	if d.deviation == 0 {
		if d.mean > target {
			return 1
		}
		return 0
	}
	return 1 - normal((target-d.mean)/d.deviation)
}

// decode returns the state of decode workers that compute shares of the prompts of each length themselves.
func (q Queueing) decode(plan Plan, f Forecast, b []Length, here []float64) decodeState {
	workers, n := float64(plan.Decode), float64(len(b))
	slow := orOne(f.DecodeSlowdown)
	var out, kvSeconds, kv2, inverse float64 // means over requests
	var promptSeconds, promptSquared, chunks float64
	for i, l := range b {
		osl := float64(max(l.OSL, 1))
		context := float64(l.ISL) + osl/2
		out += osl / n
		kvSeconds += osl * context / n
		kv2 += osl * context * context / n
		inverse += 1 / osl / n
		s := q.service(l, f)
		promptSeconds += here[i] * s / n
		promptSquared += here[i] * s * s / n
		chunks += here[i] * q.chunks(l) / n
	}
	context, rate := kvSeconds/out, f.Rate/workers
	capacity := q.Performance.KVCapacity()
	if q.MaxSeqs > 0 { // others wait, and hold no KV
		capacity = min(capacity, float64(q.MaxSeqs)*context)
	}
	// Prompts in between: a mixed step takes the time of its chunk and of its decode step.
	mixed := func(kv float64) (step, itl float64) {
		step = slow * q.Performance.ITL(kv, context)
		busy := rate * (promptSeconds + chunks*step)
		if busy >= 1 {
			return step, math.Inf(1)
		}
		return step, 1 / ((1-busy)/step + rate*chunks)
	}
	offered := func(kv float64) float64 { _, itl := mixed(kv); return rate * kvSeconds * itl }
	// The highest rate at which KV use stays at kv: offered(kv) = kv, solved for the rate, and no more
	// prompts than there is time for.
	highest := func(kv float64) float64 {
		step := slow * q.Performance.ITL(kv, context)
		r := kv / (kvSeconds*step + kv*promptSeconds)
		if chunks > 0 {
			r = min(r, 1/(promptSeconds+chunks*step))
		}
		return r
	}
	kv, below, most := capacity, 0.0, 0.0
	uses := kvUses(context, capacity)
	for i := len(uses) - 1; i >= 0; i-- { // the lowest use that keeps itself up; steps need not be monotonic
		r := highest(uses[i])
		most = max(most, r)
		if r > rate {
			if kv, below = uses[i], 0; i > 0 {
				below = uses[i-1]
			}
		}
	}
	load := rate / most
	if load < 1 {
		low, high := below, kv
		for range 40 {
			if middle := (low + high) / 2; offered(middle) > middle {
				low = middle
			} else {
				high = middle
			}
		}
		kv = high
	}
	d := decodeState{load: load, kv: kv}
	d.step, d.mean = mixed(kv)
	// The router spreads load, so that all workers have the same share of what varies.
	deviation := math.Sqrt(lifeAverage * rate * d.mean * kv2 / workers)
	_, higher := mixed(min(kv+deviation, capacity))
	prompts := rate * promptSquared * d.mean * inverse
	d.deviation = math.Sqrt((higher-d.mean)*(higher-d.mean) + prompts)
	if math.IsInf(d.mean, 1) || math.IsNaN(d.deviation) {
		d.mean, d.deviation = f.Horizon.Seconds(), 0
	}
	return d
}

// kvUses returns uses of a worker's KV, from those of one sequence to all, each larger than the one before by the same
// factor: workers of short requests never come near to the end, and steps there may say nothing of theirs.
func kvUses(context, capacity float64) []float64 {
	if context >= capacity {
		return []float64{capacity}
	}
	out := make([]float64, gridPoints+1)
	for i := range out {
		out[i] = context * math.Pow(capacity/context, float64(i)/gridPoints)
	}
	return out
}

// service returns the seconds for which a prompt occupies a worker.
func (q Queueing) service(l Length, f Forecast) float64 {
	isl := float64(l.uncached())
	return orOne(f.PrefillSlowdown) * isl / q.Performance.PrefillThroughput(isl)
}

func (q Queueing) chunks(l Length) float64 {
	chunk := q.Chunk
	if chunk <= 0 {
		chunk = defaultChunk
	}
	return math.Ceil(float64(l.uncached()) / float64(chunk))
}

// prompts returns the queues of the prompts that decode and prefill workers compute.
func (q Queueing) prompts(plan Plan, f Forecast, b []Length, d decodeState, here []float64) (local, remote promptQueue) {
	local.workers, remote.workers = plan.Decode, plan.Prefill
	for i, l := range b {
		isl := float64(l.uncached())
		alone := orOne(f.PrefillSlowdown) * q.Performance.TTFT(isl)
		steps := q.chunks(l) * d.step
		local.add(here[i], q.service(l, f)+steps, alone+steps)
		remote.add(1-here[i], q.service(l, f), alone+q.Handover.Seconds()+1.5*d.mean)
	}
	n := float64(len(b))
	local.settle(f, n)
	remote.settle(f, n)
	return local, remote
}

// quantile returns the t at which beyond, which falls, reaches share; horizon where it does not.
func quantile(beyond func(float64) float64, share, horizon float64) float64 {
	low, high := 0.0, max(horizon, 1)
	if beyond(high) > share {
		return high
	}
	for range 30 {
		if middle := (low + high) / 2; beyond(middle) > share {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func orOne(v float64) float64 {
	if v <= 0 {
		return 1
	}
	return v
}

// normal is the distribution function of the standard normal distribution.
func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
