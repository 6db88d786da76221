package live

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/planner"
)

// hours adds up how long devices were held by workers.
type hours struct {
	since time.Time
	sum   float64
}

// add takes in how many devices are held now, and were since the last call.
func (h *hours) add(now time.Time, devices int) float64 {
	if !h.since.IsZero() {
		h.sum += now.Sub(h.since).Hours() * float64(devices)
	}
	h.since = now
	return h.sum
}

// held returns how many devices workers hold: each one has its own until it is gone.
func held(v View) int {
	n := 0
	for _, a := range v.Assignments {
		if v.own(a) && a.Node != "" {
			n++
		}
	}
	return n
}

// figuresOf returns what the metrics say of a decision.
func figuresOf(r planner.Report, deviceHours float64) metrics.PlannerFigures {
	number := func(v float64) *float64 { return &v }
	known := func(v float64) *float64 { // means are 0 where nothing was seen
		if v == 0 {
			return nil
		}
		return &v
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	reason := func(name string) *float64 {
		if v, ok := r.Decision.Number(name); ok {
			return &v
		}
		return nil
	}
	ready := func(workers []planner.Worker) *float64 {
		return number(float64(planner.RoleState{Workers: workers}.In(planner.WorkerReady)))
	}
	o, d := r.Observed, r.Decision
	f := metrics.PlannerFigures{
		Reason: d.Why(), PrefillWorkers: ready(o.Prefill), DecodeWorkers: ready(o.Decode), Rate: number(o.Rate), TTFT: known(ms(o.TTFT)), ITL: known(ms(o.ITL)), Duration: known(o.Duration.Seconds()),
		ISL: known(o.ISL), OSL: known(o.OSL), PredictedRate: reason(planner.ReasonForecastRate), PredictedISL: reason(planner.ReasonISL), PredictedOSL: reason(planner.ReasonOSL),
		PredictedPrefill: number(float64(d.Proposal.Workers(cluster.RolePrefill))), PredictedDecode: number(float64(d.Proposal.Workers(cluster.RoleDecode))),
		BestEffort: number(0), DeviceHours: &deviceHours,
	}
	if d.Refusal == planner.RefusedStaleData { // of a part of the cluster, or of another time
		f.Rate = nil
	}
	if d.BestEffort {
		f.BestEffort = number(1)
	}
	if c := d.Predicted(); c != nil {
		f.PredictedMisses = &c.Outcome.Miss
	}
	return f
}
