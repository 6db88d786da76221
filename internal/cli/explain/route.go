package explain

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

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Route holds the router decisions about one request, as -o json prints them.
type Route struct {
	RequestID string `json:"request_id"`
	// Decisions are in the order in which they were made. A request that went on at
	// another worker has several; the id of such an attempt ends in ~1, ~2 and so on.
	Decisions []cluster.RouterDecision `json:"decisions"`
}

func routeCommand(a *command.App) *cobra.Command {
	return a.Command(command.Verb{
		Use: "route [request]", Short: "Say which workers a request went to, and why not to others",
		Long: `Each frontend remembers the decisions about its newest requests, some thousand of them. A
request is named by its id, which is the header X-Request-Id of the answer, or by the
beginning of that; without one the newest request is explained.

There is a row for each worker that was looked at: requests in flight when it was decided,
and what the choice would have cost. The policies there are weigh the load or take turns;
none looks at caches. So OVERLAP (blocks of the prompt in a worker's cache) and UNCACHED
(those to be computed) decide nothing: they are what the chosen worker found afterwards,
and are not known of others.`,
		Examples: []string{
			"dynctl explain route",
			"dynctl explain route 44e61cd78b3b",
			"dynctl explain route -o json | jq '.decisions[].candidates'",
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name one request")
			}
			return nil
		},
		Complete: complete.First(completeRequests(a)),
		See:      []string{"dynctl events --router", "dynctl top --view router", "dynctl set"},
		Options: func(s *session.Session, args []string) command.Runner {
			o := &RouteOptions{Session: s}
			if len(args) > 0 {
				o.Request = args[0]
			}
			return o
		},
	})
}

const routeAction = "cannot explain the route"

// RouteOptions explain where a request went.
type RouteOptions struct {
	Session *session.Session
	Request string // its id, or the beginning of that; empty: the newest
}

// askTimeout bounds what frontends are asked.
const askTimeout = 10 * time.Second

// Run prints the decisions about the request.
func (o *RouteOptions) Run(ctx context.Context) error {
	s, id := o.Session, o.Request
	c, v, err := s.Look(ctx, routeAction)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
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
		return &exit.Failure{Action: routeAction, Err: err, Code: exit.Unreachable, Tries: []string{"dynctl get nodes", "dynctl events -f --router"}}
	case err != nil:
		return &exit.Failure{Action: routeAction, Err: err, Code: exit.Unreachable}
	}
	routes := routesOf(found)
	if id == "" && len(routes) > 1 { // each frontend told its newest
		routes = routes[:1]
	}
	switch {
	case len(routes) == 0 && id == "":
		return &exit.Failure{Action: routeAction, Err: errors.New("no request came yet"), Tries: []string{"dynctl chat hello"}}
	case len(routes) == 0:
		return &exit.Failure{Action: routeAction + " of " + id, Err: errors.New("no frontend remembers such a request"), Tries: []string{"dynctl explain route   for the newest", "dynctl events -f --router"}}
	case len(routes) > 1:
		f := &exit.Failure{Action: routeAction + " of " + id, Err: fmt.Errorf("%s begin with it", human.Plural(len(routes), "request"))}
		for _, r := range routes[:min(len(routes), 8)] {
			f.Facts = append(f.Facts, r.RequestID)
		}
		f.Tries = []string{"dynctl explain route " + routes[0].RequestID}
		return f
	}
	return routes[0].print(s)
}

// routesOf groups decisions by request, the newest request first.
func routesOf(ds []cluster.RouterDecision) []Route {
	var out []Route
	for _, d := range ds { // newest first
		id, _, _ := strings.Cut(d.RequestID, "~")
		i := slices.IndexFunc(out, func(r Route) bool { return r.RequestID == id })
		if i < 0 {
			i, out = len(out), append(out, Route{RequestID: id})
		}
		out[i].Decisions = append(out[i].Decisions, d)
	}
	for i := range out {
		slices.SortStableFunc(out[i].Decisions, func(a, b cluster.RouterDecision) int { return a.Time.Compare(b.Time) })
	}
	return out
}

// print writes the answer: people get sentences around the table, programs the table alone.
func (r Route) print(s *session.Session) error {
	around := io.Writer(nil)
	if s.Out.Prose() && s.Out.Streams.OutTTY {
		around = s.Out.Streams.Out
	}
	if around != nil {
		if _, err := io.WriteString(around, r.head(s)); err != nil {
			return err
		}
	}
	a := output.Answer{Data: r, Table: func(wide bool) *output.Table { return r.table(s, wide) }}
	for _, d := range r.Decisions {
		if d.Chosen != "" {
			a.Names = append(a.Names, d.Chosen)
		}
	}
	if err := s.Out.Answer(a); err != nil || around == nil {
		return err
	}
	_, err := io.WriteString(around, r.foot(s))
	return err
}

// head is the line above the table.
func (r Route) head(sess *session.Session) string {
	p := sess.Out.Palette()
	d := r.Decisions[0]
	parts := []string{
		"route " + p.Bold(term.Clean(r.RequestID)), fmt.Sprintf("prompt %s tok = %s", human.Commas(d.PromptToks), human.Plural(d.Blocks, "block")),
		fmt.Sprintf("decided in %.2f ms", float64(d.DecidedNS)/1e6), "policy " + term.Clean(human.OrDash(d.Policy)),
		"at " + d.Time.Local().Format("15:04:05") + " (" + human.Age(sess.Out.Now().Sub(d.Time)) + " ago)",
	}
	return strings.Join(parts, "   ") + "\n"
}

// foot says where the prompt was computed, and what a cost is.
func (r Route) foot(sess *session.Session) string {
	var b strings.Builder
	for _, d := range r.Decisions {
		if text := prefillText(&d); text != "" {
			fmt.Fprintf(&b, "%s\n", term.Clean(text))
		}
	}
	if len(r.Decisions) > 1 && strings.Contains(r.Decisions[len(r.Decisions)-1].RequestID, "~") {
		fmt.Fprintf(&b, "the request continued on another worker: ~1 marks the first move\n")
	}
	if text := weighedText(&r.Decisions[0]); text != "" {
		fmt.Fprintf(&b, "%s\n", text)
	}
	if text := policyText(r.Decisions[0].Policy); text != "" {
		fmt.Fprintf(&b, "%s\n", sess.Out.Palette().Dim(text+"; dynctl set router.policy=... changes the policy"))
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
	case "kv":
		return "cost in blocks = prompts that wait there + what is to be computed of this one + the same for those who come later + blocks in use; the lowest is chosen"
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
func (r Route) table(s *session.Session, wide bool) *output.Table {
	titles := []string{"STAGE", "WORKER", ">OVERLAP", ">UNCACHED", ">LOAD", ">COST", "~RESULT"}
	if wide {
		titles = append(titles, "REQUEST", "TIME", "POLICY", "PREFILL", "INSTANCE")
	}
	t := output.NewTable(titles...)
	p := s.Out.Palette()
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
			fields := []string{string(d.Phase), human.OrDash(c.Worker), overlap, uncached, load, cost, result}
			if wide {
				fields = append(fields, d.RequestID, d.Time.UTC().Format(time.RFC3339Nano), human.OrDash(d.Policy), human.OrDash(strings.TrimSpace(d.Prefill+" "+d.PrefillWay)), c.ID.String())
			}
			t.Add(fields...)
			t.Paint(6, paint)
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
func completeRequests(a *command.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		complete.Ask(a, cmd, func(ctx context.Context, c *client.Cluster) {
			v, err := c.View(ctx)
			if err != nil {
				return
			}
			found, err := c.Decisions(ctx, v, begin, 20)
			if err != nil {
				return
			}
			for _, r := range routesOf(found) {
				last := r.Decisions[len(r.Decisions)-1]
				out = append(out, cobra.CompletionWithDesc(r.RequestID, fmt.Sprintf("%s to %s, %s", last.Time.Local().Format("15:04:05"), human.OrDash(last.Chosen), human.Plural(last.PromptToks, "token"))))
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
