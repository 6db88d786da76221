package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// RollbackOptions declares an earlier topology again.
type RollbackOptions struct {
	command.Waiting

	Session *session.Session

	To     int
	List   bool
	Yes    bool
	Why    string
	DryRun bool
}

const rollbackAction = "cannot roll back"

// RollbackCommand makes dynctl rollback.
func RollbackCommand(a *command.App) *cobra.Command {
	o := &RollbackOptions{}
	cmd := a.Command(command.Verb{
		Use: "rollback", Short: "Declare an earlier topology again", Group: command.GroupWorkers, Changes: true, Late: true,
		Long: `Each change of the topology is a generation; the latest 20 that were replaced are kept,
with the settings at run time as they were then. A rollback declares one of them as a new
generation, so that it can be taken back like any other change. Without --to it is the
latest one that differs from the present.`,
		Examples: []string{
			"dynctl rollback --list",
			"dynctl rollback --dry-run",
			"dynctl rollback --to 12 --yes",
		},
		See: []string{"dynctl diff", "dynctl up"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Count(fs, &o.To, "to", 0, "generation to go back to (default: the latest that differs)")
	fs.Lookup("to").DefValue = ""
	fs.BoolVar(&o.List, "list", false, "list the generations, and change nothing")
	fs.StringVar(&o.Why, "why", "", "reason for the change, for --list (default: this command)")
	fs.BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	o.AddFlags(fs, 5*time.Minute, "how long to wait", "the topology is declared")
	fs.BoolVar(&o.DryRun, "dry-run", false, "print what would change, and change nothing")
	command.Grouped(fs, "Topology", "to", "list", "why", "yes")
	command.Grouped(fs, "Waiting", "dry-run")
	_ = cmd.RegisterFlagCompletionFunc("to", completeGenerations(a)) // fails for unknown flags only
	return cmd
}

// Generation is one generation, as -o json prints it.
type Generation struct {
	Generation int64          `json:"generation"`
	Present    bool           `json:"present"`
	UpdatedAt  time.Time      `json:"updated_at"`
	UpdatedBy  string         `json:"updated_by"`
	Reason     string         `json:"reason"`
	Model      string         `json:"model"`
	Prefill    int            `json:"prefill"`
	Decode     int            `json:"decode"`
	Encode     int            `json:"encode"`
	Settings   map[string]any `json:"settings"` // at run time, that were set
}

// RollbackResult is the outcome as -o json prints it.
type RollbackResult struct {
	Cluster    string            `json:"cluster"`
	From       int64             `json:"from"`
	To         int64             `json:"to"`
	Generation int64             `json:"generation"` // that was declared; 0 in a dry run
	Changes    []topofile.Change `json:"changes"`
	Effects    []string          `json:"effects"`
	Converged  bool              `json:"converged"`
}

// Run lists generations, or declares an earlier one again.
func (o *RollbackOptions) Run(ctx context.Context) error {
	if !o.List && !o.DryRun {
		if err := o.Session.Writable(); err != nil {
			return err
		}
	}
	if o.List && (o.Session.Given("to") || o.DryRun) {
		return &exit.UsageError{Text: "--list goes with neither --to nor --dry-run"}
	}
	c, err := o.Session.Connect(ctx, rollbackAction)
	if err != nil {
		return err
	}
	now, ever, err := declare.Declared(ctx, c)
	if err != nil {
		return &exit.Failure{Action: rollbackAction, Err: err}
	}
	if !ever {
		return &exit.Failure{Action: rollbackAction, Err: fmt.Errorf("nothing was ever declared in cluster %s", c.Name), Tries: []string{"dynctl up"}}
	}
	past, err := c.History(ctx)
	if err != nil {
		return &exit.Failure{Action: rollbackAction, Err: err}
	}
	if o.List {
		return o.Session.Out.Answer(history(o.Session, now, past))
	}
	target, err := o.target(now, past)
	if err != nil {
		return err
	}
	next := topofile.Of(target).Onto(now)
	r := RollbackResult{
		Cluster: c.Name, From: now.Topology.Generation, To: target.Topology.Generation,
		Changes: topofile.Diff(topofile.Of(now), topofile.Of(next)), Effects: declare.Effects(now.Topology, next.Topology),
	}
	plan := declare.ChangeLines(r.Changes) + strings.Join(r.Effects, "\n") + "\n"
	switch {
	case len(r.Changes) == 0:
		r.Converged = true
		return o.Session.Out.Answer(output.Answer{Data: r, Text: fmt.Sprintf("nothing changes: %s already has generation %d.\n", c.Name, r.To)})
	case o.DryRun:
		return o.Session.Out.Answer(output.Answer{Data: r, Text: fmt.Sprintf("would go back to generation %d of %s:\n%s", r.To, c.Name, plan)})
	}
	if o.Session.Out.Prose() && !o.Yes {
		o.Session.Out.Tell("%s", strings.TrimRight(plan, "\n"))
	}
	if err := o.Session.Out.Confirm(o.Yes, rollbackAction, fmt.Sprintf("Declare generation %d again in %s? It changes %s.", r.To, c.Name, human.Plural(len(r.Changes), "field"))); err != nil {
		return err
	}
	return o.declare(ctx, c, now, target, r)
}

// target is the generation to go back to.
func (o *RollbackOptions) target(now cluster.Revision, past []cluster.Revision) (cluster.Revision, error) {
	var kept []string
	for _, r := range past {
		kept = append(kept, strconv.FormatInt(r.Topology.Generation, 10))
	}
	fail := &exit.Failure{Action: rollbackAction, Tries: []string{"dynctl rollback --list"}}
	if o.Session.Given("to") {
		if now.Topology.Generation == int64(o.To) {
			return now, nil
		}
		i := slices.IndexFunc(past, func(r cluster.Revision) bool { return r.Topology.Generation == int64(o.To) })
		if i < 0 {
			fail.Err, fail.Facts = fmt.Errorf("generation %d is not kept", o.To), []string{"kept: " + human.Names(kept)}
			return now, fail
		}
		return past[i], nil
	}
	for _, r := range past {
		if len(topofile.Diff(topofile.Of(now), topofile.Of(r))) > 0 {
			return r, nil
		}
	}
	fail.Err = errors.New("no earlier generation differs from the current one")
	return now, fail
}

// errOvertaken is returned when the topology changed after the comparison.
var errOvertaken = errors.New("another topology was declared meanwhile")

// declare writes the target as a new generation, unless another was declared meanwhile.
func (o *RollbackOptions) declare(ctx context.Context, c *client.Cluster, seen, target cluster.Revision, r RollbackResult) error {
	w, err := c.Watch(ctx)
	if err != nil {
		return &exit.Failure{Action: rollbackAction, Err: err}
	}
	defer w.Close()
	begin := o.Session.Out.Now()
	done, err := c.Apply(ctx, func(now *cluster.Revision, _ bool) error {
		if now.Topology.Generation != seen.Topology.Generation {
			return errOvertaken
		}
		*now = topofile.Of(target).Onto(*now)
		now.Topology.Reason = declare.Reason(o.Session, o.Why)
		return nil
	})
	switch {
	case errors.Is(err, errOvertaken):
		return &exit.Failure{Action: rollbackAction, Err: err, Tries: []string{"dynctl rollback --list"}}
	case err != nil:
		return &exit.Failure{Action: rollbackAction, Err: err}
	}
	r.Generation = done.Topology.Generation
	text := fmt.Sprintf("%s goes back to generation %d, which is generation %d now.\n", c.Name, r.To, r.Generation)
	if o.NoWait {
		if err := o.Session.Out.Answer(output.Answer{Data: r, Text: text}); err != nil {
			return err
		}
		return exit.Silent{Code: exit.Accepted}
	}
	wait := settle.Wait{Out: o.Session.Out, Operation: "rollback", Doing: "rolling back", Timeout: o.Timeout, Progress: o.Progress}
	if err := wait.Run(ctx, c, w, done.Topology); err != nil {
		return err
	}
	r.Converged = true
	text = fmt.Sprintf("%s is as in generation %d after %s: generation %d, %s.\n", c.Name, r.To, human.Duration(o.Session.Out.Now().Sub(begin)),
		r.Generation, human.Shape(done.Topology))
	return o.Session.Out.Answer(output.Answer{Data: r, Text: text})
}

// history lists the present generation and the past ones, the newest first.
func history(s *session.Session, now cluster.Revision, past []cluster.Revision) output.Answer {
	list, a := []Generation{}, output.Answer{}
	for i, r := range slices.Concat([]cluster.Revision{now}, past) {
		t := r.Topology
		g := Generation{t.Generation, i == 0, t.UpdatedAt, t.UpdatedBy, t.Reason, t.Model.Name, t.Prefill, t.Decode, t.Encode, map[string]any{}}
		f := topofile.Of(r)
		for _, ch := range topofile.Diff(topofile.File{}, f) {
			if _, set := f.Settings[ch.Path]; set {
				g.Settings[ch.Path] = ch.To
			}
		}
		list, a.Names = append(list, g), append(a.Names, strconv.FormatInt(t.Generation, 10))
	}
	a.Data = list
	a.Table = func(wide bool) *output.Table {
		titles := []string{">GENERATION", "CHANGED", "BY", ">PREFILL", ">DECODE", ">ENCODE", "~MODEL", "~WHY"}
		if wide {
			titles = append(titles, "~SETTINGS")
		}
		t := output.NewTable(titles...)
		for _, g := range list {
			at := g.UpdatedAt.UTC().Format(time.RFC3339)
			if s.Out.Streams.OutTTY {
				at = human.Age(s.Out.Now().Sub(g.UpdatedAt)) + " ago"
			}
			number := strconv.FormatInt(g.Generation, 10)
			if g.Present {
				number = "now " + number
			}
			row := []string{number, at, human.OrDash(g.UpdatedBy), strconv.Itoa(g.Prefill), strconv.Itoa(g.Decode), strconv.Itoa(g.Encode), human.OrDash(g.Model), human.OrDash(g.Reason)}
			if wide {
				row = append(row, human.OrDash(settingsText(g.Settings)))
			}
			t.Add(row...)
		}
		return t
	}
	return a
}

// settingsText prints settings as dynctl set takes them.
func settingsText(settings map[string]any) string {
	var words []string
	for _, fd := range topofile.Fields() {
		if v, ok := settings[fd.Path]; ok {
			words = append(words, fd.Path+"="+fmt.Sprint(v))
		}
	}
	return strings.Join(words, " ")
}

// completeGenerations completes those that are kept.
func completeGenerations(a *command.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		complete.Ask(a, cmd, func(ctx context.Context, c *client.Cluster) {
			past, err := c.History(ctx)
			if err != nil {
				return
			}
			for _, r := range past {
				t := r.Topology
				out = append(out, cobra.CompletionWithDesc(strconv.FormatInt(t.Generation, 10), human.Shape(t)+" "+t.Model.Name))
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
