package planner

import "time"

// Refusal says why a decision changes nothing, or less than it would.
type Refusal string

// Refusals.
const (
	RefusedOff              Refusal = "off"               // mode is off
	RefusedNotLeader        Refusal = "not_leader"        // another planner decides
	RefusedInsufficientData Refusal = "insufficient_data" // too few requests seen
	RefusedStaleData        Refusal = "stale_data"        // the newest observation is too old, or from the future
	RefusedNodeLost         Refusal = "node_lost"         // a node was lost a moment ago: what comes back is unknown
	RefusedUnfinished       Refusal = "change_unfinished" // an action is still under way
	RefusedNoChange         Refusal = "no_change"         // the workers are right for the load
	RefusedConsolidation    Refusal = "consolidation"     // fewer workers would be too near their limits
	RefusedCoolDown         Refusal = "cool_down"         // the role grew a moment ago
	RefusedMinimum          Refusal = "minimum"           // fewer workers would do, and are not allowed
	RefusedBudget           Refusal = "budget"            // more workers are needed than the budget allows
	RefusedEvaluation       Refusal = "evaluation_failed" // the evaluator returned an error
	RefusedBackOff          Refusal = "back_off"          // a worker of the role did not get ready: none is started for a while
	RefusedByHand           Refusal = "changed_by_hand"   // somebody else changes the workers, or did a moment ago
	RefusedAttached         Refusal = "attached_only"     // there are attached servers only
	RefusedConnector        Refusal = "connector_failed"  // what carries decisions out cannot be used
)

// Cause says what a change is for.
type Cause string

// Causes.
const (
	CauseForecast  Cause = "forecast"  // the throughput loop: the load that is expected or measured
	CauseDivide    Cause = "divide"    // the same load, by fewer workers that are divided otherwise
	CauseLoad      Cause = "load"      // the load loop: all workers of a role miss
	CauseDown      Cause = "down"      // fewer workers carry the load
	CauseThreshold Cause = "threshold" // the same workers, with prompts divided otherwise between them
	CauseTakeBack  Cause = "take_back" // a start that is no longer needed
	CauseMinimum   Cause = "minimum"   // fewer workers than the minimum
	CauseBudget    Cause = "budget"    // more workers than the budget
	CauseWake      Cause = "wake"      // requests wait and no worker serves
	CauseNoTraffic Cause = "idle"      // nothing arrives
	CauseGiveUp    Cause = "give_up"   // a worker did not get ready in time; whoever carries decisions out gives it
)

// Candidate is a plan that was considered.
type Candidate struct {
	Plan     Plan    `json:"plan"`
	Devices  int     `json:"devices"`
	Outcome  Outcome `json:"outcome"`
	Holds    bool    `json:"holds"`    // the target
	Rejected string  `json:"rejected"` // why it was not chosen; empty for the chosen one
}

// Names of the numbers that lead to decisions.
const (
	ReasonForecastRate     = "forecast_rate"     // the highest forecast within the look-ahead
	ReasonLookAhead        = "look_ahead"        // how long a plan must last: two starts and a load interval
	ReasonDailyRate        = "daily_rate"        // the highest of the same times on earlier days, with the level of today
	ReasonDailyDays        = "daily_days"        // days that it is known from
	ReasonDailyError       = "daily_error"       // of forecasts that earlier days have raised; that of the predictor alone is 1
	ReasonProvenArrivals   = "proven_arrivals"   // arrivals in the span with the highest lower bound
	ReasonProvenSeconds    = "proven_seconds"    // the length of this span
	ReasonProvenRate       = "proven_rate"       // (arrivals - 2 sqrt(arrivals)) / seconds
	ReasonPlannedRate      = "planned_rate"      // the larger of forecast_rate and proven_rate
	ReasonBacklogRate      = "backlog_rate"      // what must be served beside arrivals to end a backlog in time
	ReasonSizedRate        = "sized_rate"        // the larger of forecast_rate and proven_arrivals / proven_seconds, and backlog_rate
	ReasonLaterRate        = "later_rate"        // the highest forecast until a stopped worker would have paid for its return
	ReasonPayback          = "payback"           // how long that is
	ReasonPossibleArrivals = "possible_arrivals" // arrivals in the longer span with the highest upper bound
	ReasonPossibleSeconds  = "possible_seconds"  // the length of this span
	ReasonPossibleRate     = "possible_rate"     // (arrivals + 2 sqrt(arrivals)) / seconds
	ReasonDownRate         = "down_rate"         // the largest of later_rate, possible_rate and planned_rate
	ReasonSensitivity      = "sensitivity"       // fewer workers must hold down_rate / sensitivity
	ReasonISL              = "isl"               // mean prompt tokens that are computed
	ReasonOSL              = "osl"               // mean generated tokens
	ReasonSeenRequests     = "seen_requests"     // that finished under the plan as it is, of a sample
	ReasonSeenMissed       = "seen_missed"       // of these, a target
	ReasonRequestsSeen     = "requests_seen"     // requests whose lengths are known
	ReasonCoolDownLeft     = "cool_down_left"    // until the role may lose a worker
	ReasonUnfinished       = "actions_unfinished"
	ReasonOverdue          = "actions_overdue" // actions that took longer than action_timeout and hold nothing up
	ReasonWindowsMissed    = "windows_missed"  // windows in a row in which all workers of the role missed; its unit is the role
	ReasonDevices          = "devices"         // that the current plan needs
	ReasonOtherPools       = "other_pools"     // devices of the budget that other pools keep
	ReasonBudget           = "budget"          // devices that it may have
)

// Reason is one number that led to a decision.
type Reason struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Decision is what a Planner says at one time.
type Decision struct {
	Time     time.Time `json:"time"`
	Mode     Mode      `json:"mode"`
	Current  Plan      `json:"current"`
	Proposal Plan      `json:"proposal"` // equal to Current where nothing changes
	Actions  []Action  `json:"actions,omitempty"`
	Cause    Cause     `json:"cause,omitempty"`   // of a change
	Refusal  Refusal   `json:"refusal,omitempty"` // of no change; with a change, of a larger one
	// Late names the workers that did not get ready in time. They are in neither plan.
	Late []string `json:"late_starts,omitempty"`
	// BestEffort says that no plan within the budget holds the target.
	BestEffort bool        `json:"best_effort,omitempty"`
	Candidates []Candidate `json:"candidates,omitempty"`
	Reasons    []Reason    `json:"reasons,omitempty"`
	Predictor  string      `json:"predictor,omitempty"`
	Detail     string      `json:"detail,omitempty"` // a sentence, where numbers do not say it
	NextCheck  time.Time   `json:"next_check"`
}

// Changes reports whether the decision proposes another plan.
func (d Decision) Changes() bool { return d.Proposal != d.Current }

// Number returns the value of a reason.
func (d Decision) Number(name string) (float64, bool) {
	for _, r := range d.Reasons {
		if r.Name == name {
			return r.Value, true
		}
	}
	return 0, false
}

func (d *Decision) reason(name string, value float64, unit string) {
	d.Reasons = append(d.Reasons, Reason{name, value, unit})
}
