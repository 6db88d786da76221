package planner

import (
	"fmt"
	"strings"
	"time"
)

// Report is a decision, with what was seen and what was wanted: what a running planner tells.
type Report struct {
	// Pool is the name of the pool that it is about, Model that of its model; a pool "" is the main pool.
	Pool  string `json:"pool,omitempty"`
	Model string `json:"model,omitempty"`
	// Beside are the workers in all plans that are of other pools: attached servers of the same model.
	Beside Plan `json:"beside,omitzero"`
	// Measured is when somebody measured the speed that the workers are taken to have; zero where
	// it is learned from what they do.
	Measured time.Time `json:"measured,omitzero"`
	Node     string    `json:"node"` // that decided
	Target   Wanted    `json:"target"`
	Observed Seen      `json:"observed"`
	Decision Decision  `json:"decision"`
	// Explanation is Decision.Lines.
	Explanation []string `json:"explanation"`
	// Changes are the last ones that planners of this cluster ordered, oldest first.
	Changes []Change `json:"changes,omitempty"`
}

// Result is what became of a change.
type Result string

// Results.
const (
	ResultUnderWay  Result = "under_way"
	ResultDone      Result = "done"
	ResultConflict  Result = "conflict"  // somebody else changed the workers at that moment: not ordered
	ResultFailed    Result = "failed"    // could not be ordered
	ResultUnknown   Result = "unknown"   // the store did not say whether it was ordered
	ResultOvertaken Result = "overtaken" // somebody ordered something else before it was done
	ResultLate      Result = "late"      // a worker did not get ready in time
)

// Change is a change of the workers that a planner in mode act ordered, or could not.
type Change struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node"` // whose planner it was
	From    Plan      `json:"from"`
	To      Plan      `json:"to"`
	Actions []Action  `json:"actions,omitempty"`
	Cause   Cause     `json:"cause"`
	// Generation is that of the topology, DecisionID that of the virtual connector.
	Generation int64     `json:"generation,omitempty"`
	DecisionID *int64    `json:"decision_id,omitempty"`
	Result     Result    `json:"result"`
	Ended      time.Time `json:"ended,omitzero"`
	Detail     string    `json:"detail,omitempty"`
}

// Words says what was ordered, and why.
func (c Change) Words() string {
	if c.Cause == "" { // of a planner that died before it told of it
		_, text, _ := strings.Cut(c.Detail, ": ") // after who signed it
		return text
	}
	return fmt.Sprintf("%s -> %s: %s, because %s", c.From, c.To, changeWords(c.From, c.To, c.Actions), causes[c.Cause])
}

// Outcome says what became of it.
func (c Change) Outcome() string {
	text := strings.ReplaceAll(string(c.Result), "_", " ")
	if !c.Ended.IsZero() && c.Result != ResultConflict {
		text += " after " + c.Ended.Sub(c.Time).Round(time.Second/10).String()
	}
	if c.Detail != "" && c.Cause != "" {
		text += ", " + c.Detail
	}
	return text
}

// Wanted is a [Target] as it is told, with the budget.
type Wanted struct {
	Goal       Goal          `json:"goal"`
	TTFT       time.Duration `json:"ttft_ns,omitempty"`
	ITL        time.Duration `json:"itl_ns,omitempty"`
	Percentile float64       `json:"percentile,omitempty"`
	Devices    int           `json:"devices"`
}

// Seen sums up an [Observation]. Means are 0 where nothing was seen.
type Seen struct {
	Start    time.Time     `json:"start"`
	End      time.Time     `json:"end"`
	Arrived  int           `json:"arrived"`
	Rate     float64       `json:"requests_per_s"`
	Finished int           `json:"finished_sampled"` // requests that the means are over
	TTFT     time.Duration `json:"mean_ttft_ns"`
	ITL      time.Duration `json:"mean_itl_ns"`
	Duration time.Duration `json:"mean_request_duration_ns"` // from arrival to the last token
	ISL      float64       `json:"mean_prompt_tokens"`
	Cached   float64       `json:"mean_cached_tokens"`
	OSL      float64       `json:"mean_output_tokens"`
	Queued   int           `json:"queued"` // prompts that wait for a prefill worker
	Prefill  []Worker      `json:"prefill,omitempty"`
	Decode   []Worker      `json:"decode,omitempty"`
}

// NewReport returns what a planner with the configuration tells of a decision.
func NewReport(node string, cfg Config, o Observation, d Decision) Report {
	r := Report{Node: node, Decision: d, Explanation: d.Lines(), Observed: o.seen()}
	r.Target = Wanted{Goal: cfg.Target.Goal, Devices: cfg.Devices}
	if cfg.Target.Goal == GoalSLA {
		r.Target.TTFT, r.Target.ITL, r.Target.Percentile = cfg.Target.TTFT, cfg.Target.ITL, cfg.Target.Percentile
	}
	return r
}

// Predicted returns how the proposed plan is expected to do; nil where no plan was evaluated.
func (d Decision) Predicted() *Candidate {
	for i, c := range d.Candidates {
		if c.Plan == d.Proposal {
			return &d.Candidates[i]
		}
	}
	return nil
}

func (o Observation) seen() Seen {
	// Of the clock that the report tells: the monotonic one, which Sub prefers, differs by some nanoseconds.
	start, end := o.Start.Round(0), o.End.Round(0)
	s := Seen{Start: start, End: end, Arrived: o.Arrived, Finished: len(o.Requests), Queued: o.Prefill.Queued, Prefill: o.Prefill.Workers, Decode: o.Decode.Workers}
	if span := end.Sub(start).Seconds(); span > 0 {
		s.Rate = float64(o.Arrived) / span
	}
	var ttft, itl, took time.Duration
	var firsts, rests int
	n := float64(max(len(o.Requests), 1))
	for _, r := range o.Requests {
		s.ISL += float64(r.ISL) / n
		s.Cached += float64(r.Cached) / n
		s.OSL += float64(r.OSL) / n
		if r.TTFT > 0 {
			ttft, firsts = ttft+r.TTFT, firsts+1
			took += r.TTFT + r.ITL*time.Duration(max(r.OSL-1, 0))
		}
		if r.ITL > 0 {
			itl, rests = itl+r.ITL, rests+1
		}
	}
	s.TTFT, s.ITL, s.Duration = ttft/time.Duration(max(firsts, 1)), itl/time.Duration(max(rests, 1)), took/time.Duration(max(firsts, 1))
	return s
}

// News reports whether a decision says something new after prev, the one before: it proposes another
// change or refuses one, or what prev proposed or refused is over. The zero value stands for a planner that
// has said nothing.
func (d Decision) News(prev Decision) bool {
	if d.Changes() {
		return !prev.Changes() || d.Proposal != prev.Proposal || d.Current != prev.Current
	}
	return prev.Changes() || d.refused() != prev.refused()
}

// refused returns the refusal; empty where nothing would have to be done.
func (d Decision) refused() Refusal {
	if d.Refusal == RefusedNoChange {
		return ""
	}
	return d.Refusal
}

// Why names what the decision is for: the cause of a change, else the refusal.
func (d Decision) Why() string {
	if d.Changes() {
		return string(d.Cause)
	}
	return string(d.Refusal)
}

// Headline is the decision in one sentence, with the detail of a refusal.
func (r Report) Headline() string {
	if len(r.Explanation) == 0 {
		return ""
	}
	line := r.Explanation[0]
	if d := r.Decision.Detail; d != "" {
		line += " " + d + "."
	}
	return line
}
