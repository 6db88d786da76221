package metrics

import "github.com/prometheus/client_golang/prometheus"

// PlannerFigures are those of one decision of the planner. Unknown ones are nil, and have no series.
type PlannerFigures struct {
	Reason string // for which the decision is as it is, a word from a fixed set

	PrefillWorkers, DecodeWorkers     *float64 // that serve
	Rate                              *float64 // requests a second that arrived in the last window
	TTFT, ITL                         *float64 // milliseconds, means of the requests that finished in it
	Duration                          *float64 // seconds, likewise
	ISL, OSL                          *float64 // tokens, likewise
	PredictedRate                     *float64 // the highest within the look-ahead
	PredictedISL, PredictedOSL        *float64 // means of the lengths that are planned on
	PredictedPrefill, PredictedDecode *float64 // workers that are proposed
	PredictedMisses, BestEffort       *float64
	DeviceHours                       *float64 // of workers since this node began to plan
}

// Planner holds the metrics of the planner that runs on this node.
type Planner struct {
	gauges    []plannerGauge
	decisions *CounterVec
}

type plannerGauge struct {
	vec *GaugeVec
	of  func(f *PlannerFigures) *float64
}

// NewPlanner returns the metrics of a planner in r. They have no series before the first decision.
func NewPlanner(r *Registry) *Planner {
	p := &Planner{decisions: r.counter(PlannerDecisions, "Total number of decisions of the planner, by cause of a change or reason of a refusal", LabelReason, LabelPool)}
	gauge := func(name, help string, of func(f *PlannerFigures) *float64) {
		p.gauges = append(p.gauges, plannerGauge{r.gauge(name, help, LabelPool), of})
	}
	gauge(PlannerPrefillWorkers, "Prefill workers that serve", func(f *PlannerFigures) *float64 { return f.PrefillWorkers })
	gauge(PlannerDecodeWorkers, "Decode workers that serve", func(f *PlannerFigures) *float64 { return f.DecodeWorkers })
	gauge(PlannerRate, "Requests a second that arrived in the last window", func(f *PlannerFigures) *float64 { return f.Rate })
	gauge(PlannerTTFT, "Mean time to first token in the last window, in milliseconds", func(f *PlannerFigures) *float64 { return f.TTFT })
	gauge(PlannerITL, "Mean inter-token latency in the last window, in milliseconds", func(f *PlannerFigures) *float64 { return f.ITL })
	gauge(PlannerDuration, "Mean duration of the requests that finished in the last window, in seconds", func(f *PlannerFigures) *float64 { return f.Duration })
	gauge(PlannerISL, "Mean prompt tokens of the requests that finished in the last window", func(f *PlannerFigures) *float64 { return f.ISL })
	gauge(PlannerOSL, "Mean output tokens of the requests that finished in the last window", func(f *PlannerFigures) *float64 { return f.OSL })
	gauge(PlannerPredictedRate, "Highest forecast of requests a second within the look-ahead", func(f *PlannerFigures) *float64 { return f.PredictedRate })
	gauge(PlannerPredictedISL, "Mean prompt tokens to compute of the requests that are planned on", func(f *PlannerFigures) *float64 { return f.PredictedISL })
	gauge(PlannerPredictedOSL, "Mean output tokens of the requests that are planned on", func(f *PlannerFigures) *float64 { return f.PredictedOSL })
	gauge(PlannerPredictedPrefill, "Prefill workers that the planner proposes", func(f *PlannerFigures) *float64 { return f.PredictedPrefill })
	gauge(PlannerPredictedDecode, "Decode workers that the planner proposes", func(f *PlannerFigures) *float64 { return f.PredictedDecode })
	gauge(PlannerMisses, "Share of requests that are expected to miss the target under the proposed plan", func(f *PlannerFigures) *float64 { return f.PredictedMisses })
	gauge(PlannerBestEffort, "1 while no plan within the budget holds the target", func(f *PlannerFigures) *float64 { return f.BestEffort })
	gauge(PlannerGPUHours, "Hours of devices that workers held since this node began to plan", func(f *PlannerFigures) *float64 { return f.DeviceHours })
	return p
}

// Update shows the figures of a decision on a pool. The main pool is called "": to Prometheus, an empty label is none, so
// that series of one pool are as without the label.
func (p *Planner) Update(pool string, f PlannerFigures) {
	for _, g := range p.gauges {
		setNumber(g.vec, g.of(&f), 1, []string{pool})
	}
	p.decisions.WithLabelValues(f.Reason, pool).Inc()
}

// Forget removes the series of a pool.
func (p *Planner) Forget(pool string) {
	match := prometheus.Labels{LabelPool: pool}
	for _, g := range p.gauges {
		g.vec.DeletePartialMatch(match)
	}
	p.decisions.DeletePartialMatch(match)
}

// Clear removes all series: this node plans no more.
func (p *Planner) Clear() {
	for _, g := range p.gauges {
		g.vec.Reset()
	}
	p.decisions.Reset()
}
