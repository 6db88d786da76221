package cluster

import (
	"fmt"
	"time"
)

// PlannerView is the planner as operators see it: its newest decision, and how it went.
type PlannerView struct {
	// Pool is the name of the pool that it is about; empty for the main pool.
	Pool string `json:"pool,omitempty"`
	// Mode is planner.mode in effect: off, advise or act; empty while it is not known.
	Mode string `json:"mode,omitempty"`
	// Node is the name of the node that decided; empty without a decision. The fields below
	// are about this decision.
	Node string    `json:"node,omitempty"`
	Time time.Time `json:"time,omitzero"` // of the decision, by the clock of that node
	// HeardAt is when it came, by the observer's clock, and NextCheck when the planner wants to
	// decide again. Every is how long after it the next one should come: [PlannerView.Silent].
	HeardAt   time.Time     `json:"heard_at,omitzero"`
	NextCheck time.Time     `json:"next_check,omitzero"`
	Every     time.Duration `json:"every_ns,omitempty"`

	Target    PlannerTarget  `json:"target"`
	Observed  PlannerFigures `json:"observed"`  // in the last window; latencies are means
	Predicted PlannerFigures `json:"predicted"` // of the proposed plan; latencies are at the target's percentile
	Queued    *int           `json:"queued"`    // prompts that wait for a prefill worker

	Current    PlannerPlan `json:"current"`
	Proposal   PlannerPlan `json:"proposal"` // equal to Current where nothing changes
	Cause      string      `json:"cause,omitempty"`
	Refusal    string      `json:"refusal,omitempty"`
	Detail     string      `json:"detail,omitempty"`
	BestEffort bool        `json:"best_effort,omitempty"` // no plan within the budget holds the target
	// Explanation says it in sentences, the first of which is the decision.
	Explanation []string `json:"explanation,omitempty"`

	// Rates and Forecasts have a sample for each decision, oldest first, in requests a second;
	// nil is a gap.
	Rates     []*float64 `json:"rates,omitempty"`
	Forecasts []*float64 `json:"forecasts,omitempty"`
	// Orders are what planners in mode act have ordered, newest first.
	Orders []PlannerOrder `json:"orders,omitempty"`
	// Changes are the decisions that said something new, newest first.
	Changes []PlannerChange `json:"changes,omitempty"`
}

// PlannerTarget is what a plan must hold. Latencies are in milliseconds, and nil for goals
// without them.
type PlannerTarget struct {
	Goal       string   `json:"goal,omitempty"`
	TTFT       *float64 `json:"ttft_ms"`
	ITL        *float64 `json:"itl_ms"`
	Percentile float64  `json:"percentile,omitempty"` // 0.95: at most 5 % of the requests may miss
	Devices    int      `json:"devices"`
}

// PlannerFigures describe a load and how it is served; nil is unknown.
type PlannerFigures struct {
	Rate *float64 `json:"requests_per_s"` // predicted: the highest within the look-ahead
	TTFT *float64 `json:"ttft_ms"`
	ITL  *float64 `json:"itl_ms"`
	ISL  *float64 `json:"prompt_tokens"` // predicted: without those in a prefix cache
	OSL  *float64 `json:"output_tokens"`
	Miss *float64 `json:"miss_ratio"` // 0 to 1: requests that miss the target; not observed
}

// PlannerPlan is how many workers a cluster has, and which prompts leave decode workers.
type PlannerPlan struct {
	Prefill         int `json:"prefill"`
	Decode          int `json:"decode"`
	MaxLocalPrefill int `json:"max_local_prefill_tokens"`
}

// String writes xPyD, as topologies are called.
func (p PlannerPlan) String() string { return PlanName(p.Prefill, p.Decode) }

// PlanName writes xPyD. Without prefill workers, decode workers compute all prompts.
func PlanName(prefill, decode int) string {
	if prefill == 0 {
		return fmt.Sprintf("%d aggregated", decode)
	}
	return fmt.Sprintf("%dP%dD", prefill, decode)
}

// PlannerChange is a decision that said something new: it proposed a change, refused one,
// or ended either.
type PlannerChange struct {
	Time time.Time   `json:"time"`
	From PlannerPlan `json:"from"`
	To   PlannerPlan `json:"to"`
	Why  string      `json:"why"`  // the cause or the refusal, by name
	Text string      `json:"text"` // the decision as a sentence
}

// PlannerOrder is a change of the workers that a planner has ordered, or could not.
type PlannerOrder struct {
	Time   time.Time `json:"time"`
	Node   string    `json:"node"`   // whose planner it was
	Text   string    `json:"text"`   // what was ordered, and why
	Result string    `json:"result"` // what became of it
}

// Proposes reports whether another plan is proposed.
func (p *PlannerView) Proposes() bool { return p.Proposal != p.Current }

// Why names what the decision is for: the cause of a change, else the refusal.
func (p *PlannerView) Why() string {
	if p.Proposes() {
		return p.Cause
	}
	return p.Refusal
}

// Silent reports whether a planner that has decided should have done so again: two decisions
// are missing, and it has had the time in which others are called silent.
func (p *PlannerView) Silent(now time.Time) bool {
	return p.Node != "" && now.Sub(p.HeardAt) > 2*p.Every+SilentAfter
}
