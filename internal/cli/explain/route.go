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

// Route is what was decided about one request, as -o json prints it.
type Route struct {
	RequestID string `json:"request_id"`
	// Decisions are in the order in which they were made. A request that went on at
	// another worker has several; the id of such an attempt ends in ~1, ~2 and so on.
	Decisions []cluster.RouterDecision `json:"decisions"`
}

func routeCommand(a *command.App) *cobra.Command {
	o := &RouteOptions{}
	cmd := a.Command(command.Verb{
		Use: "route [request | question]", Short: "Say which workers a request went to, and why not to others",
		Long: `Each frontend remembers the decisions about its newest requests, some thousand of them. A
request is named by its id, which is the header X-Request-Id of the answer, or by the
beginning of that; without one the newest request is explained.

There is a row for each worker that was looked at: requests in flight when it was decided, and
what the choice would have cost. TERMS add up to COST; the policy decides which terms there
are. OVERLAP counts blocks of the prompt in a worker's cache, UNCACHED those to be computed. If
overlap is no term, they decided nothing: they are what the chosen worker found afterwards, and
are not told of others. PREDICTED (-o wide) is what the frontend's index promised of the chosen
worker, FOUND what the worker then had in its cache.

With --image it explains where a question would go now, and who would encode its images.`,
		Examples: []string{
			"dynctl explain route",
			"dynctl explain route 44e61cd78b3b",
			`dynctl explain route --image door.png "Which code is on the door?"`,
		},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name one request, or put the question into quotes")
			}
			return nil
		},
		Complete: complete.First(completeRequests(a)),
		See:      []string{"dynctl events --router", "dynctl top --view router", "dynctl set"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session = s
			switch {
			case len(args) == 0:
			case s.Given("image"):
				o.Question = args[0]
			default:
				o.Request = args[0]
			}
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&o.Images, "image", nil, "ask about a question with an image that is not sent: a file, or an https URL")
	fs.StringVar(&o.Model, "model", "", "model of that question (default: the only one that is served)")
	command.Grouped(fs, "Question", "image", "model")
	_ = cmd.MarkFlagFilename("image") // these fail for unknown flags only
	_ = cmd.RegisterFlagCompletionFunc("model", complete.Models(a))
	return cmd
}

const routeAction = "cannot explain the route"

// RouteOptions explain where a request went.
type RouteOptions struct {
	Session *session.Session
	Request string // its id, or the beginning of that; empty: the newest

	// Of a question that is not sent; without images a request is explained.
	Images          []string
	Question, Model string
}

// askTimeout bounds what frontends are asked.
const askTimeout = 10 * time.Second

// Run prints the decisions about the request, or where a question would go.
func (o *RouteOptions) Run(ctx context.Context) error {
	if len(o.Images) > 0 {
		return o.ask(ctx)
	}
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
		f := &exit.Failure{Action: routeAction + " of " + id, Err: fmt.Errorf("%s begin so", human.Plural(len(routes), "request"))}
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

// table has a row for each candidate of each decision.
func (r Route) table(s *session.Session, wide bool) *output.Table {
	titles := []string{"STAGE", "WORKER", ">OVERLAP", ">UNCACHED", ">LOAD", "~TERMS", ">COST", "~RESULT"}
	if wide {
		titles = append(titles, "REQUEST", "TIME", "POLICY", "PREFILL", "INSTANCE", ">PREDICTED", ">FOUND")
	}
	t := output.NewTable(titles...)
	p := s.Out.Palette()
	for _, d := range r.Decisions {
		row := func(c cluster.RouteCandidate, result string, paint func(string) string) {
			overlap, uncached, load, terms, cost := "-", "-", "-", "-", "-"
			if c.Worker != "" {
				load = strconv.Itoa(c.Load)
			}
			if c.Excluded == "" && c.Worker != "" {
				if have, known := d.OverlapAt(&c); known {
					overlap, uncached = fmt.Sprintf("%d/%d", have, d.Blocks), strconv.Itoa(max(d.Blocks-have, 0))
				}
				terms, cost = termsText(c.Terms, c.Cost), costText(c.Cost)
			}
			fields := []string{string(d.Phase), human.OrDash(c.Worker), overlap, uncached, load, terms, cost, result}
			if wide {
				fields = append(fields, d.RequestID, d.Time.UTC().Format(time.RFC3339Nano), human.OrDash(d.Policy), human.OrDash(strings.TrimSpace(d.Prefill+" "+d.PrefillWay)), c.ID.String())
				predicted, found := "-", "-"
				if c.Worker == d.Chosen && d.Chosen != "" {
					if predicted = strconv.Itoa(d.Predicted); d.Prefill != "" {
						found = strconv.Itoa(d.Overlap)
					}
				}
				fields = append(fields, predicted, found)
			}
			t.Add(fields...)
			t.Paint(7, paint)
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
		second := secondBest(&d)
		for i, c := range d.Candidates {
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
				row(c, "equal, and the hash chose another", p.Dim)
			case i == second:
				row(c, signed(c.Cost-best)+", second best", p.Dim)
			default:
				row(c, signed(c.Cost-best), p.Dim)
			}
		}
	}
	return t
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
