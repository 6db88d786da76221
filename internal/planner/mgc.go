package planner

import "math"

// promptQueue is a queue M/G/c of prompts.
type promptQueue struct {
	workers   int
	occupancy []float64 // seconds for which each prompt occupies a worker
	latency   []float64 // seconds from its start to its first token

	share   float64 // of all requests
	load    float64
	waiting float64 // share that waits
	pace    float64 // of those, the share that waits longer than t is exp(-pace t)
}

func (q *promptQueue) add(occupancy, latency float64) {
	q.occupancy = append(q.occupancy, occupancy)
	q.latency = append(q.latency, latency)
}

// settle computes the wait, where the prompts added are those of n requests.
func (q *promptQueue) settle(f Forecast, n float64) {
	count := float64(len(q.occupancy))
	q.share = count / n
	if count == 0 {
		return
	}
	var mean, square float64
	for _, s := range q.occupancy {
		mean += s / count
		square += s * s / count
	}
	rate := f.Rate * q.share
	q.load = rate * mean / float64(q.workers)
	if q.load >= 1 {
		return
	}
	variability := max(0, square/(mean*mean)-1)
	q.waiting = erlangC(q.workers, rate*mean)
	q.pace = (1 - q.load) * float64(q.workers) / (mean * (1 + variability) / 2)
}

// beyond returns the share of the prompts whose first token takes longer than t seconds.
func (q *promptQueue) beyond(t float64) float64 {
	sum := 0.0
	for _, l := range q.latency {
		switch slack := t - l; {
		case slack < 0:
			sum++
		case q.load >= 1: // the queue grows for good
			sum++
		default:
			sum += q.waiting * math.Exp(-q.pace*slack)
		}
	}
	return sum / max(1, float64(len(q.latency)))
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
