package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// route is what was decided about one request, as -o json prints it.
type route struct {
	RequestID string `json:"request_id"`
	// Decisions are in the order in which they were made. A request that went on at
	// another worker has several; the id of such an attempt ends in ~1, ~2 and so on.
	Decisions []cluster.RouterDecision `json:"decisions"`
}

func (f *factory) explainRoute() *cobra.Command {
	return f.command(verb{
		use: "route [request]", short: "Say which workers a request went to, and why not to others",
		long: `Each frontend remembers the decisions about its newest requests, some thousand of them. A
request is named by its id, which is the header X-Request-Id of the answer, or by the
beginning of that; without one the newest request is explained.

There is a row for each worker that was looked at: requests in flight when it was decided,
and what the choice would have cost. The policies there are weigh the load or take turns;
none looks at caches. So OVERLAP (blocks of the prompt in a worker's cache) and UNCACHED
(those to be computed) decide nothing: they are what the chosen worker found afterwards,
and are not known of others.`,
		examples: []string{
			"dynctl explain route",
			"dynctl explain route 44e61cd78b3b",
			"dynctl explain route -o json | jq '.decisions[].candidates'",
		},
		args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name one request")
			}
			return nil
		},
		complete: f.completeRequests,
		see:      []string{"dynctl events --router", "dynctl top --view router", "dynctl set"},
		run:      explainRoute,
	})
}

const routeAction = "cannot explain the route"

func explainRoute(ctx context.Context, inv *invocation, args []string) error {
	id := ""
	if len(args) > 0 {
		id = args[0]
	}
	c, v, err := inv.look(ctx, routeAction)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	limit := 0
	if id == "" {
		limit = 1
	}
	found, err := c.Decisions(limited, v, id, limit)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, client.ErrNoDecisions):
		return &failure{action: routeAction, err: err, code: exitUnreachable, tries: []string{"dynctl get nodes", "dynctl events -f --router"}}
	case err != nil:
		return &failure{action: routeAction, err: err, code: exitUnreachable}
	}
	routes := routesOf(found)
	if id == "" && len(routes) > 1 { // each frontend told its newest
		routes = routes[:1]
	}
	switch {
	case len(routes) == 0 && id == "":
		return &failure{action: routeAction, err: errors.New("no request came yet"), tries: []string{"dynctl chat hello"}}
	case len(routes) == 0:
		return &failure{action: routeAction + " of " + id, err: errors.New("no frontend remembers such a request"), tries: []string{"dynctl explain route   for the newest", "dynctl events -f --router"}}
	case len(routes) > 1:
		f := &failure{action: routeAction + " of " + id, err: fmt.Errorf("%s begin so", plural(len(routes), "request"))}
		for _, r := range routes[:min(len(routes), 8)] {
			f.facts = append(f.facts, r.RequestID)
		}
		f.tries = []string{"dynctl explain route " + routes[0].RequestID}
		return f
	}
	return routes[0].print(inv)
}

// routesOf groups decisions by request, the newest request first.
func routesOf(ds []cluster.RouterDecision) []route {
	var out []route
	for _, d := range ds { // newest first
		id, _, _ := strings.Cut(d.RequestID, "~")
		i := slices.IndexFunc(out, func(r route) bool { return r.RequestID == id })
		if i < 0 {
			i, out = len(out), append(out, route{RequestID: id})
		}
		out[i].Decisions = append(out[i].Decisions, d)
	}
	for i := range out {
		slices.SortStableFunc(out[i].Decisions, func(a, b cluster.RouterDecision) int { return a.Time.Compare(b.Time) })
	}
	return out
}

// print writes the answer: people get sentences around the table, programs the table alone.
func (r route) print(inv *invocation) error {
	around := io.Writer(nil)
	if inv.prose() && inv.env.Streams.OutTTY {
		around = inv.stdout()
	}
	if around != nil {
		if _, err := io.WriteString(around, r.head(inv)); err != nil {
			return err
		}
	}
	a := answer{data: r, table: func(wide bool) *table { return r.table(inv, wide) }}
	for _, d := range r.Decisions {
		if d.Chosen != "" {
			a.names = append(a.names, d.Chosen)
		}
	}
	if err := inv.answer(a); err != nil || around == nil {
		return err
	}
	_, err := io.WriteString(around, r.foot(inv))
	return err
}

// head is the line above the table.
func (r route) head(inv *invocation) string {
	p := inv.palette()
	d := r.Decisions[0]
	parts := []string{
		"route " + p.Bold(term.Clean(r.RequestID)), fmt.Sprintf("prompt %s tok = %s", commas(d.PromptToks), plural(d.Blocks, "block")),
		fmt.Sprintf("decided in %.2f ms", float64(d.DecidedNS)/1e6), "policy " + term.Clean(orDash(d.Policy)),
		"at " + d.Time.Local().Format("15:04:05") + " (" + age(inv.env.Now().Sub(d.Time)) + " ago)",
	}
	return strings.Join(parts, "   ") + "\n"
}

// foot says where the prompt was computed, and what a cost is.
func (r route) foot(inv *invocation) string {
	var b strings.Builder
	for _, d := range r.Decisions {
		if text := prefillText(&d); text != "" {
			fmt.Fprintf(&b, "%s\n", term.Clean(text))
		}
	}
	if len(r.Decisions) > 1 && strings.Contains(r.Decisions[len(r.Decisions)-1].RequestID, "~") {
		fmt.Fprintf(&b, "the request went on at another worker: ~1 is the first such time\n")
	}
	if text := weighedText(&r.Decisions[0]); text != "" {
		fmt.Fprintf(&b, "%s\n", text)
	}
	if text := policyText(r.Decisions[0].Policy); text != "" {
		fmt.Fprintf(&b, "%s\n", inv.palette().Dim(text+"; dynctl set router.policy=... changes the policy"))
	}
	return b.String()
}

// weighedText says which terms decided, and that the overlap did not if it is told.
func weighedText(d *cluster.RouterDecision) string {
	if len(d.Weighed) == 0 {
		return ""
	}
	text := "decided by " + term.Clean(strings.Join(d.Weighed, " and "))
	if !d.WeighsOverlap() {
		text += "; overlap is observed at the chosen worker, and not weighed"
	}
	return text
}

// policyText says how a policy chooses; empty for one that is not known here.
func policyText(policy string) string {
	switch policy {
	case "least-loaded":
		return "cost = requests in flight; the lowest is chosen, and equals draw lots"
	case "round-robin":
		return "workers take turns, whatever their load"
	}
	return ""
}

// prefillText says where the prompt of a decision was computed; empty if that is not known.
func prefillText(d *cluster.RouterDecision) string {
	if d.Prefill == "" {
		return ""
	}
	text := "prompt computed at " + d.Prefill
	if d.Prefill == "local" && d.Chosen != "" {
		text = "prompt computed by " + d.Chosen + " itself"
	}
	if d.PrefillWay != "" {
		text += " by " + d.PrefillWay
	}
	if d.PrefillWhy != "" {
		text += " (" + d.PrefillWhy + ")"
	}
	return text
}

// table has a row for each candidate of each decision.
func (r route) table(inv *invocation, wide bool) *table {
	titles := []string{"STAGE", "WORKER", ">OVERLAP", ">UNCACHED", ">LOAD", ">COST", "~RESULT"}
	if wide {
		titles = append(titles, "REQUEST", "TIME", "POLICY", "PREFILL", "INSTANCE")
	}
	t := newTable(titles...)
	p := inv.palette()
	for _, d := range r.Decisions {
		row := func(c cluster.RouteCandidate, result string, paint func(string) string) {
			overlap, uncached, load, cost := "-", "-", "-", "-"
			if c.Worker != "" {
				load = strconv.Itoa(c.Load)
			}
			if c.Excluded == "" && c.Worker != "" {
				if have, known := d.OverlapAt(&c); known {
					overlap, uncached = fmt.Sprintf("%d/%d", have, d.Blocks), strconv.Itoa(max(d.Blocks-have, 0))
				}
				cost = costText(c.Cost)
			}
			fields := []string{string(d.Phase), orDash(c.Worker), overlap, uncached, load, cost, result}
			if wide {
				fields = append(fields, d.RequestID, d.Time.UTC().Format(time.RFC3339Nano), orDash(d.Policy), orDash(strings.TrimSpace(d.Prefill+" "+d.PrefillWay)), c.ID.String())
			}
			t.add(fields...)
			t.paint(6, paint)
		}
		if len(d.Candidates) == 0 {
			row(cluster.RouteCandidate{}, "no worker to choose from", p.Bad)
		}
		best := math.NaN()
		for _, c := range d.Candidates {
			if c.Worker == d.Chosen && d.Chosen != "" {
				best = c.Cost
			}
		}
		for _, c := range d.Candidates {
			switch {
			case c.Excluded != "":
				row(c, "excluded: "+c.Excluded, p.Warn)
			case c.Worker == d.Chosen && d.Chosen != "":
				row(c, "chosen", p.Good)
			case math.IsNaN(best) || math.IsInf(c.Cost, 0):
				row(c, "-", p.Dim)
			case d.Policy == "round-robin":
				row(c, "not its turn", p.Dim)
			case c.Cost == best:
				row(c, "equal, and the draw went to another", p.Dim)
			default:
				row(c, fmt.Sprintf("%+.1f", c.Cost-best), p.Dim)
			}
		}
	}
	return t
}

func costText(cost float64) string {
	if math.IsNaN(cost) || math.IsInf(cost, 0) {
		return "-"
	}
	return fmt.Sprintf("%.1f", cost)
}

// completeRequests completes the ids of requests that frontends remember, newest first.
func (f *factory) completeRequests(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f.lookAtCluster(cmd, func(ctx context.Context, c *client.Cluster, v client.View) {
		found, err := c.Decisions(ctx, v, begin, 20)
		if err != nil {
			return
		}
		for _, r := range routesOf(found) {
			last := r.Decisions[len(r.Decisions)-1]
			out = append(out, cobra.CompletionWithDesc(r.RequestID, fmt.Sprintf("%s to %s, %s", last.Time.Local().Format("15:04:05"), orDash(last.Chosen), plural(last.PromptToks, "token"))))
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
