package planner

import "math"

// promptQueue is a queue M/G/c of prompts.
type promptQueue struct {
	workers   int
	weight    []float64 // how many prompts each of these stands for
	occupancy []float64 // seconds for which one occupies a worker
	latency   []float64 // seconds from its start to its first token

	count   float64 // sum of the weights
	share   float64 // of all requests
	mean    float64 // of occupancy
	load    float64
	waiting float64 // share that waits
	pace    float64 // of those, the share that waits longer than t is exp(-pace t)
}

func (q *promptQueue) add(weight, occupancy, latency float64) {
	if weight == 0 {
		return
	}
	q.weight = append(q.weight, weight)
	q.count += weight
	q.occupancy = append(q.occupancy, occupancy)
	q.latency = append(q.latency, latency)
}

// settle computes the wait, where the prompts added are those of n requests.
func (q *promptQueue) settle(f Forecast, n float64) {
	q.share = q.count / n
	if q.count == 0 {
		return
	}
	var mean, square float64
	for i, s := range q.occupancy {
		mean += s * q.weight[i] / q.count
		square += s * s * q.weight[i] / q.count
	}
	q.mean = mean
	rate := f.Rate * q.share
	q.load = rate * mean / float64(q.workers)
	if q.load >= 1 || mean == 0 { // prompts that take no time do not wait
		return
	}
	variability := max(0, square/(mean*mean)-1)
	q.waiting = erlangC(q.workers, rate*mean)
	q.pace = (1 - q.load) * float64(q.workers) / (mean * (1 + variability) / 2)
}

// beyond returns the share of the prompts whose first token takes longer than t seconds.
func (q *promptQueue) beyond(t float64) float64 {
	if q.count == 0 {
		return 0
	}
	sum := 0.0
	for i, l := range q.latency {
		switch slack := t - l; {
		case slack < 0:
			sum += q.weight[i]
		case q.load >= 1: // the queue grows for good
			sum += q.weight[i]
		default:
			sum += q.weight[i] * q.waiting * math.Exp(-q.pace*slack)
		}
	}
	return sum / q.count
}

// wait returns the mean seconds that a prompt waits.
func (q *promptQueue) wait(f Forecast) float64 {
	switch {
	case q.mean == 0: // none, or none that takes time
		return 0
	case q.load >= 1:
		return f.Horizon.Seconds()
	}
	return q.waiting / q.pace
}

// prompts returns how many prompts a worker has, on average.
func (q *promptQueue) prompts(f Forecast) float64 {
	return f.Rate * q.share * (q.wait(f) + q.mean) / float64(q.workers)
}

// erlangC returns the probability that a request waits in a queue M/M/c with load erlangs,
// less than servers: Erlang's B by recursion, and C of it.
func erlangC(servers int, load float64) float64 {
	b := 1.0
	for k := 1; k <= servers; k++ {
		b = load * b / (float64(k) + load*b)
	}
	rho := load / float64(servers)
	return b / (1 - rho*(1-b))
}
