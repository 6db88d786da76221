package simulation

import (
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
)

// OfLoad returns the comparison on a load of package planner, without a cluster.
func OfLoad(l autoscalers.Load, seed uint64) Comparison {
	arrivals := l.Arrivals(seed)
	lengths := make([]planner.Length, len(arrivals))
	for i, a := range arrivals {
		lengths[i] = a.Length
	}
	return Comparison{
		Name: l.Name, Load: func() simulate.Source { return Drawn(arrivals) }, Arrivals: arrivals, Seconds: l.Seconds,
		Mean: planner.Forecast{Rate: float64(len(arrivals)) / l.Seconds, Lengths: lengths, Horizon: 3 * time.Minute},
	}
}

// OfTrace returns the comparison on a trace, without a cluster. An autoscaler that knows the trace is left out: what caches
// will hold of it depends on the workers.
func OfTrace(name string, requests []mooncake.Request) Comparison {
	c := Comparison{Name: name, Load: func() simulate.Source { return simulate.NewTrace(requests, 1, 1) }}
	for _, r := range requests {
		c.Mean.Lengths = append(c.Mean.Lengths, planner.Length{ISL: r.Input, OSL: r.Output})
	}
	span := simulate.NewTrace(requests, 1, 1).Span()
	c.Mean.Rate, c.Mean.Horizon = float64(len(requests))/span.Seconds(), 3*time.Minute
	return c
}

// drawn plays arrivals whose prompts have nothing in common.
type drawn struct {
	arrivals []autoscalers.Arrival
	next     int
}

// Drawn returns the load of arrivals.
func Drawn(arrivals []autoscalers.Arrival) simulate.Source { return &drawn{arrivals: arrivals} }

// Next implements simulate.Source.
func (d *drawn) Next() (simulate.Request, bool) {
	if d.next == len(d.arrivals) {
		return simulate.Request{}, false
	}
	a := d.arrivals[d.next]
	d.next++
	return simulate.Request{
		At: profile.Seconds(a.At), Output: a.OSL,
		Parts: []workload.Part{{Text: uint64(d.next), Tokens: a.ISL}},
	}, true
}
