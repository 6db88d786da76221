package planner

import (
	"fmt"
	"strings"
	"time"
)

// sentences say what a refusal means.
var sentences = map[Refusal]string{
	RefusedOff:              "The planner is off.",
	RefusedNotLeader:        "Another node's planner decides.",
	RefusedInsufficientData: "Too little was seen to decide.",
	RefusedStaleData:        "The observation says nothing of now.",
	RefusedNodeLost:         "A node was lost: nothing is decided until it is known what comes back.",
	RefusedUnfinished:       "An earlier change has not finished.",
	RefusedNoChange:         "The workers are right for the load.",
	RefusedConsolidation:    "Fewer workers would carry the load, but too near their limits.",
	RefusedCoolDown:         "Fewer workers would do, but the role grew a moment ago.",
	RefusedMinimum:          "Fewer workers would do, but the minimum keeps them.",
	RefusedBudget:           "More workers are needed than the budget allows.",
	RefusedEvaluation:       "The load could not be evaluated.",
	RefusedBackOff:          "A worker of the role did not get ready: none is started for a while.",
	RefusedByHand:           "Somebody else changes the workers: what they make of them is the base of what follows.",
	RefusedAttached:         "There are only attached servers: nothing to start.",
	RefusedConnector:        "What carries decisions out cannot be used.",
}

// causes say what a change is for.
var causes = map[Cause]string{
	CauseForecast:  "the load needs it",
	CauseDivide:    "fewer workers carry the load if they are divided so",
	CauseLoad:      "all workers of the role miss",
	CauseDown:      "fewer workers carry the load",
	CauseThreshold: "fewer workers carry the load if prompts are divided so between decode and prefill workers",
	CauseTakeBack:  "the load that it was for has gone",
	CauseMinimum:   "the minimum wants it",
	CauseBudget:    "the budget is exceeded",
	CauseWake:      "requests wait and no worker serves",
	CauseNoTraffic: "nothing arrives",
	CauseGiveUp:    "a worker did not get ready in time",
}

// Lines explains the decision in sentences. Each number that is the result of others stands behind
// these, so that every line adds up by hand, but for rounding.
func (d Decision) Lines() []string {
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	n := func(name string) float64 { v, _ := d.Number(name); return v }
	has := func(name string) bool { _, ok := d.Number(name); return ok }

	if d.Changes() {
		line("%s -> %s: %s, because %s.", d.Current, d.Proposal, changeWords(d.Current, d.Proposal, d.Actions), causes[d.Cause])
	} else {
		line("%s stays. %s", d.Current, sentences[d.Refusal])
	}
	if d.Changes() && d.Refusal != "" {
		line("%s", sentences[d.Refusal])
	}
	if d.BestEffort {
		line("No plan within the budget holds the target: this one misses least.")
	}
	if d.Detail != "" {
		line("%s.", d.Detail)
	}
	if len(d.Late) > 0 {
		line("%s did not get ready in time and is no longer waited for.", strings.Join(d.Late, ", "))
	}
	if has(ReasonPlannedRate) {
		line("forecast: %.1f requests/s at the most in %.0f s (%s)", n(ReasonForecastRate), n(ReasonLookAhead), d.Predictor)
		if has(ReasonDailyRate) {
			line("%s", d.dailyWords())
		}
		line("proven: (%.0f - 2 sqrt(%.0f)) / %.0f s = %.1f requests/s", n(ReasonProvenArrivals), n(ReasonProvenArrivals), n(ReasonProvenSeconds), n(ReasonProvenRate))
		line("must carry: max(%.1f, %.1f) = %.1f requests/s", n(ReasonForecastRate), n(ReasonProvenRate), n(ReasonPlannedRate))
	}
	if has(ReasonSizedRate) {
		line("sized for: max(%.1f, %.0f / %.0f s) + %.1f of backlog = %.1f requests/s",
			n(ReasonForecastRate), n(ReasonProvenArrivals), n(ReasonProvenSeconds), n(ReasonBacklogRate), n(ReasonSizedRate))
	}
	if down := d.Cause == CauseDown || d.Cause == CauseTakeBack || !d.Changes() && !has(ReasonSizedRate); has(ReasonDownRate) && down {
		line("possible: max(%.1f forecast in %.0f s, (%.0f + 2 sqrt(%.0f)) / %.0f s, %.1f to carry) = %.1f requests/s", n(ReasonLaterRate), n(ReasonPayback),
			n(ReasonPossibleArrivals), n(ReasonPossibleArrivals), n(ReasonPossibleSeconds), n(ReasonPlannedRate), n(ReasonDownRate))
		line("fewer workers must hold: %.1f / %.2f = %.1f requests/s", n(ReasonDownRate), n(ReasonSensitivity), n(ReasonDownRate)/n(ReasonSensitivity))
	}
	if has(ReasonISL) {
		line("lengths: %.0f prompt tokens to compute and %.0f to generate, on average", n(ReasonISL), n(ReasonOSL))
	}
	for _, c := range d.Candidates {
		verdict := "chosen"
		if c.Rejected != "" {
			verdict = c.Rejected
		}
		if c.Plan == d.Current {
			verdict = "now; " + verdict
			if c.Rejected == "" {
				verdict = "now"
			}
		}
		plan := c.Plan.String()
		if c.Plan.MaxLocalPrefill != d.Current.MaxLocalPrefill {
			plan += fmt.Sprintf(" with local prompts to %d tokens", c.Plan.MaxLocalPrefill)
		}
		line("%s, %d devices: %s: %s", plan, c.Devices, c.Outcome.words(), verdict)
	}
	for _, r := range d.Reasons {
		switch r.Name {
		case ReasonCoolDownLeft:
			line("cool-down: %.0f s left", r.Value)
		case ReasonSeenRequests:
			line("seen: %.0f of %.0f requests missed a target under these workers: they stay, whatever is predicted", n(ReasonSeenMissed), r.Value)
		case ReasonRequestsSeen:
			line("requests whose lengths are known: %.0f", r.Value)
		case ReasonUnfinished:
			line("actions under way: %.0f", r.Value)
		case ReasonOverdue:
			line("actions that take longer than they may, and are not waited for: %.0f", r.Value)
		case ReasonWindowsMissed:
			line("all %s workers missed in %.0f windows in a row", r.Unit, r.Value)
		case ReasonOtherPools:
			line("devices of the budget that other pools keep: %.0f", r.Value)
		case ReasonBudget:
			line("devices: %.0f needed, %.0f allowed", n(ReasonDevices), r.Value)
		}
	}
	return out
}

// dailyWords says what earlier days are worth.
func (d Decision) dailyWords() string {
	rate, _ := d.Number(ReasonDailyRate)
	ahead, _ := d.Number(ReasonLookAhead)
	days, _ := d.Number(ReasonDailyDays)
	text := fmt.Sprintf("earlier days: %.1f requests/s at the most in %.0f s, by %.0f of them: ", rate, ahead, days)
	switch e, tested := d.Number(ReasonDailyError); {
	case !tested:
		return text + "do not count, they have not been tested"
	case e < 1-dayMargin:
		return text + fmt.Sprintf("count where they are higher, since they have lowered the error of forecasts to %.0f %%", 100*e)
	default:
		return text + fmt.Sprintf("do not count, the error of forecasts with them is %.0f %% of that without", 100*e)
	}
}

func (o Outcome) words() string {
	return fmt.Sprintf("prefill load %.2f, decode load %.2f, TTFT %s, ITL %s, %.1f %% miss", o.PrefillLoad, o.DecodeLoad,
		o.TTFT.Round(time.Millisecond), o.ITL.Round(100*time.Microsecond), 100*o.Miss)
}

// changeWords says what leads from one plan to another.
func changeWords(from, to Plan, actions []Action) string {
	var words []string
	for _, a := range actions {
		if a.Kind == ActionFlip {
			words = append(words, fmt.Sprintf("flip %d to %s", a.Workers, a.Role))
		} else {
			words = append(words, fmt.Sprintf("%s %d %s", a.Kind, a.Workers, a.Role))
		}
	}
	if from.MaxLocalPrefill != to.MaxLocalPrefill {
		words = append(words, fmt.Sprintf("change disagg.max_local_prefill_tokens from %d to %d", from.MaxLocalPrefill, to.MaxLocalPrefill))
	}
	return strings.Join(words, ", ")
}
