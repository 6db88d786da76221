package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
)

// PlannerOptions explain what the planner advises, or does.
type PlannerOptions struct {
	Session *session.Session
	Pool    string
}

func plannerCommand(a *command.App) *cobra.Command {
	o := &PlannerOptions{}
	cmd := a.Command(command.Verb{
		Use: "planner", Short: "Say how many workers the planner wants for the load, and why",
		Long: `The planner runs on the node that leads. It observes requests and workers, and advises; with
planner.mode=act it changes the workers, too, and the last changes are listed. What it must
hold are the settings planner.* (dynctl get settings). Pools of the topology are planned each for
its own model; they share the devices.`,
		Examples: []string{
			"dynctl explain planner --pool small",
			"dynctl explain planner -o json | jq .planner.decision.proposal",
			"dynctl explain planner -o json | jq .planner.changes",
		},
		See: []string{"dynctl get settings", "dynctl scale", "dynctl top"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	cmd.Flags().StringVar(&o.Pool, "pool", "", "pool of the topology to explain alone (default: all)")
	_ = cmd.RegisterFlagCompletionFunc("pool", complete.Pools(a)) // fails for unknown flags only
	return cmd
}

// Run prints the explanation.
func (o *PlannerOptions) Run(ctx context.Context) error {
	s := o.Session
	c, v, err := s.Look(ctx, "cannot explain the planner")
	if err != nil {
		return err
	}
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	mode, err := c.PlannerMode(ctx, v, leader)
	if err != nil {
		return err
	}
	reports, err := c.PlannerReports(ctx)
	if err != nil {
		return err
	}
	pools := planned(v.Topology, reports)
	if s.Given("pool") {
		if !slices.Contains(pools, o.Pool) {
			return &exit.Failure{Action: "cannot explain the planner", Err: fmt.Errorf("there is no pool %q that is planned", o.Pool), Facts: []string{"pools: " + human.OrDash(strings.Join(slices.DeleteFunc(pools, func(p string) bool { return p == "" }), ", "))}, Tries: []string{"dynctl get topology -o yaml"}}
		}
		pools = []string{o.Pool}
	}
	var first *Explanation
	for _, pool := range pools {
		var report *planner.Report
		if i := slices.IndexFunc(reports, func(r planner.Report) bool { return r.Pool == pool }); i >= 0 {
			report = &reports[i]
		}
		x := explainPlanner(pool, report, leader, mode, s.Out.Now())
		if first == nil {
			first = x
		} else if x.State != "off" {
			first.Pools = append(first.Pools, x)
		}
	}
	return first.answer(s)
}

// planned lists the pools that are planned, or have been: the main pool first, unless there are only others.
func planned(t *cluster.Topology, reports []planner.Report) (pools []string) {
	for _, r := range reports {
		pools = append(pools, r.Pool)
	}
	if t != nil {
		pools = append(pools, slices.Collect(maps.Keys(t.Pools))...)
	}
	if len(pools) == 0 || t == nil || t.In("").Workers() > 0 {
		pools = append(pools, "")
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// decisionAge is the age from which a decision is called old: the store has one of the last minute.
const decisionAge = 90 * time.Second

// explainPlanner puts together what is known of the planner of a pool.
func explainPlanner(pool string, r *planner.Report, leader, mode string, now time.Time) *Explanation {
	x := &Explanation{Kind: "planner", Name: leader, State: "advises", Planner: r}
	if pool != "" {
		x.fact("pool", "%s", pool)
	}
	switch {
	case mode == string(planner.ModeOff):
		x.State, x.Why, x.Next, x.Planner = "off", "planner.mode is off", "nothing is decided", nil
		x.Name, x.Try = human.OrDash(leader), []string{"dynctl set planner.mode=advise"}
		return x
	case leader == "":
		x.State, x.Why, x.Next = "no leader", "no node leads, so that nobody plans", "a node is elected and begins to observe"
		x.Name, x.Try = "-", []string{"dynctl get nodes", "dynctl doctor"}
	case r == nil:
		x.State, x.Why = "no data", "too little was seen to decide: the speed of workers needs five windows in which they compute prompts and decode, and lengths need finished requests"
		x.Next = "it decides once it has seen more load"
		x.Try = []string{"dynctl chat", "dynctl bench"}
	default:
		x.Why = r.Explanation[0]
		x.Next = "it looks again at " + r.Decision.NextCheck.UTC().Format(time.TimeOnly) + " UTC"
		switch acts := r.Decision.Mode == planner.ModeAct; {
		case r.Decision.Refusal == planner.RefusedOff || r.Decision.Refusal == planner.RefusedAttached:
			x.State = "leaves the workers"
		case acts && len(r.Changes) > 0 && r.Changes[len(r.Changes)-1].Result == planner.ResultUnderWay:
			x.State = "acts, a change is under way"
		case acts:
			x.State = "acts"
		case r.Decision.Changes():
			x.State = "advises a change"
			x.Try = orders(pool, r.Decision, r.Beside)
		}
	}
	if r == nil {
		return x
	}
	x.since(r.Decision.Time)
	if age := now.Sub(r.Decision.Time); age > decisionAge {
		x.fact("old", "the decision is %s old: since then the planner on the node that leads has seen too little to decide", human.Age(age))
	}
	if r.Node != leader {
		x.fact("by", "%s, which led then", r.Node)
	}
	t, seen := r.Target, r.Observed
	if t.Goal == planner.GoalSLA {
		x.fact("target", "TTFT %s and ITL %s for %.0f %% of the requests, with at most %d devices", t.TTFT, t.ITL, 100*t.Percentile, t.Devices)
	} else {
		x.fact("target", "goal %s, with at most %d devices", t.Goal, t.Devices)
	}
	if !r.Measured.IsZero() {
		x.fact("speed", "as it was measured %s ago, with dynctl profile --teach", human.Age(now.Sub(r.Measured)))
	}
	x.fact("observed", "%d requests in %.1f s: %.2f requests/s; %d wait for a prefill worker", seen.Arrived, seen.End.Sub(seen.Start).Seconds(), seen.Rate, seen.Queued)
	if seen.Finished > 0 {
		x.fact("observed", "%d finished, on average: %.0f prompt tokens (%.0f cached), %.0f generated, TTFT %s, ITL %s", seen.Finished, seen.ISL, seen.Cached, seen.OSL,
			seen.TTFT.Round(time.Millisecond), seen.ITL.Round(100*time.Microsecond))
	}
	if b := r.Beside; b != (planner.Plan{}) {
		x.fact("counted", "%d prefill and %d decode workers of other pools, which serve %s, too", b.Prefill, b.Decode, r.Model)
	}
	if r.Decision.Refusal != "" {
		x.fact("refusal", "%s", r.Decision.Refusal)
	}
	if p := r.Decision.Predicted(); p != nil {
		x.fact("predicted", "%s: TTFT %s, ITL %s, %.1f %% miss", p.Plan, p.Outcome.TTFT.Round(time.Millisecond), p.Outcome.ITL.Round(100*time.Microsecond), 100*p.Outcome.Miss)
	}
	for _, c := range slices.Backward(r.Changes) {
		x.fact("change", "%s", changeLine(c))
	}
	for i, line := range r.Explanation {
		if i > 0 || x.State == "no leader" {
			x.fact("reason", "%s", line)
		}
	}
	return x
}

// orders are the commands that carry a decision out.
func orders(pool string, d planner.Decision, beside planner.Plan) (out []string) {
	from, to := d.Current, d.Proposal
	if from.Prefill != to.Prefill || from.Decode != to.Decode {
		of := ""
		if pool != "" {
			of = " --pool " + pool
		}
		out = append(out, fmt.Sprintf("dynctl scale%s --prefill %d --decode %d", of, to.Prefill-beside.Prefill, to.Decode-beside.Decode))
	}
	if from.MaxLocalPrefill != to.MaxLocalPrefill {
		out = append(out, fmt.Sprintf("dynctl set disagg.max_local_prefill_tokens=%d", to.MaxLocalPrefill))
	}
	return out
}

// changeLine says what was ordered, when, by whom, and what became of it.
func changeLine(c planner.Change) string {
	return fmt.Sprintf("%s UTC by %s: %s: %s", c.Time.UTC().Format(time.TimeOnly), c.Node, c.Words(), c.Outcome())
}
