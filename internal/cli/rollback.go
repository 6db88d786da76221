package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// rollbackCommand declares an earlier topology again.
type rollbackCommand struct {
	to      int
	list    bool
	yes     bool
	why     string
	timeout time.Duration
	noWait  bool
	dryRun  bool
	mode    string
}

const rollbackAction = "cannot roll back"

func (f *factory) rollback() *cobra.Command {
	o := &rollbackCommand{}
	cmd := f.command(verb{
		use: "rollback", short: "Declare an earlier topology again", group: groupWorkers, changes: true,
		long: `Each change of the topology is a generation; the latest 20 that were replaced are kept,
with the settings at run time as they were then. A rollback declares one of them as a new
generation, so that it can be taken back like any other change. Without --to it is the
latest one that differs from the present.`,
		examples: []string{
			"dynctl rollback --list",
			"dynctl rollback --dry-run",
			"dynctl rollback --to 12 --yes",
		},
		see: []string{"dynctl diff", "dynctl up"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	countVar(fs, &o.to, "to", 0, "generation to go back to (default: the latest that differs)")
	fs.Lookup("to").DefValue = ""
	fs.BoolVar(&o.list, "list", false, "list the generations, and change nothing")
	fs.StringVar(&o.why, "why", "", "reason for the change, for --list (default: this command)")
	fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	durationVar(fs, &o.timeout, "timeout", 5*time.Minute, "how long to wait")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the topology is declared, with exit code 8")
	fs.BoolVar(&o.dryRun, "dry-run", false, "print what would change, and change nothing")
	progressVar(fs, &o.mode)
	grouped(fs, "Topology", "to", "list", "why", "yes")
	grouped(fs, "Waiting", "timeout", "no-wait", "dry-run", "progress")
	_ = cmd.RegisterFlagCompletionFunc("to", f.completeGenerations) // fails for unknown flags only
	return cmd
}

// lists reports whether a command only lists.
func lists(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("list")
	return err == nil && on
}

// generation is one generation, as -o json prints it.
type generation struct {
	Generation int64          `json:"generation"`
	Present    bool           `json:"present"`
	UpdatedAt  time.Time      `json:"updated_at"`
	UpdatedBy  string         `json:"updated_by"`
	Reason     string         `json:"reason"`
	Model      string         `json:"model"`
	Prefill    int            `json:"prefill"`
	Decode     int            `json:"decode"`
	Settings   map[string]any `json:"settings"` // at run time, that were set
}

// rollbackResult is the outcome as -o json prints it.
type rollbackResult struct {
	Cluster    string            `json:"cluster"`
	From       int64             `json:"from"`
	To         int64             `json:"to"`
	Generation int64             `json:"generation"` // that was declared; 0 in a dry run
	Changes    []topofile.Change `json:"changes"`
	Effects    []string          `json:"effects"`
	Converged  bool              `json:"converged"`
}

func (o *rollbackCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	if o.list && (inv.cmd.Flags().Changed("to") || o.dryRun) {
		return &usageError{text: "--list goes with neither --to nor --dry-run"}
	}
	c, err := inv.connect(ctx, rollbackAction)
	if err != nil {
		return err
	}
	now, ever, err := declared(ctx, c)
	if err != nil {
		return &failure{action: rollbackAction, err: err}
	}
	if !ever {
		return &failure{action: rollbackAction, err: fmt.Errorf("nothing was ever declared in cluster %s", c.Name), tries: []string{"dynctl up"}}
	}
	past, err := c.History(ctx)
	if err != nil {
		return &failure{action: rollbackAction, err: err}
	}
	if o.list {
		return inv.answer(history(inv, now, past))
	}
	target, err := o.target(inv, now, past)
	if err != nil {
		return err
	}
	next := topofile.Of(target).Onto(now)
	r := rollbackResult{
		Cluster: c.Name, From: now.Topology.Generation, To: target.Topology.Generation,
		Changes: topofile.Diff(topofile.Of(now), topofile.Of(next)), Effects: effects(now.Topology, next.Topology),
	}
	plan := changeLines(r.Changes) + strings.Join(r.Effects, "\n") + "\n"
	switch {
	case len(r.Changes) == 0:
		r.Converged = true
		return inv.answer(answer{data: r, text: fmt.Sprintf("nothing changes: generation %d is what %s has.\n", r.To, c.Name)})
	case o.dryRun:
		return inv.answer(answer{data: r, text: fmt.Sprintf("would go back to generation %d of %s:\n%s", r.To, c.Name, plan)})
	}
	if inv.prose() && !o.yes {
		inv.tell("%s", strings.TrimRight(plan, "\n"))
	}
	if err := inv.confirm(o.yes, rollbackAction, fmt.Sprintf("Declare generation %d again in %s? It changes %s.", r.To, c.Name, plural(len(r.Changes), "field"))); err != nil {
		return err
	}
	return o.declare(ctx, inv, c, now, target, r)
}

// target is the generation to go back to.
func (o *rollbackCommand) target(inv *invocation, now cluster.Revision, past []cluster.Revision) (cluster.Revision, error) {
	var kept []string
	for _, r := range past {
		kept = append(kept, strconv.FormatInt(r.Topology.Generation, 10))
	}
	fail := &failure{action: rollbackAction, tries: []string{"dynctl rollback --list"}}
	if inv.cmd.Flags().Changed("to") {
		if now.Topology.Generation == int64(o.to) {
			return now, nil
		}
		i := slices.IndexFunc(past, func(r cluster.Revision) bool { return r.Topology.Generation == int64(o.to) })
		if i < 0 {
			fail.err, fail.facts = fmt.Errorf("generation %d is not kept", o.to), []string{"kept: " + nameList(kept)}
			return now, fail
		}
		return past[i], nil
	}
	for _, r := range past {
		if len(topofile.Diff(topofile.Of(now), topofile.Of(r))) > 0 {
			return r, nil
		}
	}
	fail.err = errors.New("no earlier generation differs from the present one")
	return now, fail
}

// errOvertaken is returned when somebody else changes what was compared.
var errOvertaken = errors.New("somebody declared another topology meanwhile")

// declare writes the target as a new generation, if nobody was faster.
func (o *rollbackCommand) declare(ctx context.Context, inv *invocation, c *client.Cluster, seen, target cluster.Revision, r rollbackResult) error {
	w, err := c.Watch(ctx)
	if err != nil {
		return &failure{action: rollbackAction, err: err}
	}
	defer w.Close()
	begin := inv.env.Now()
	done, err := c.Apply(ctx, func(now *cluster.Revision, _ bool) error {
		if now.Topology.Generation != seen.Topology.Generation {
			return errOvertaken
		}
		*now = topofile.Of(target).Onto(*now)
		now.Topology.Reason = inv.reason(o.why)
		return nil
	})
	switch {
	case errors.Is(err, errOvertaken):
		return &failure{action: rollbackAction, err: err, tries: []string{"dynctl rollback --list"}}
	case err != nil:
		return &failure{action: rollbackAction, err: err}
	}
	r.Generation = done.Topology.Generation
	text := fmt.Sprintf("%s goes back to generation %d, which is generation %d now.\n", c.Name, r.To, r.Generation)
	if o.noWait {
		if err := inv.answer(answer{data: r, text: text}); err != nil {
			return err
		}
		return silent{exitAccepted}
	}
	wait := settling{operation: "rollback", doing: "rolling back", timeout: o.timeout, mode: o.mode}
	if err := wait.run(ctx, inv, c, w, done.Topology); err != nil {
		return err
	}
	r.Converged = true
	text = fmt.Sprintf("%s is as in generation %d after %s: generation %d, %s.\n", c.Name, r.To, duration(inv.env.Now().Sub(begin)),
		r.Generation, shape(done.Topology.Prefill, done.Topology.Decode))
	return inv.answer(answer{data: r, text: text})
}

// history lists the present generation and the past ones, the newest first.
func history(inv *invocation, now cluster.Revision, past []cluster.Revision) answer {
	list, a := []generation{}, answer{}
	for i, r := range slices.Concat([]cluster.Revision{now}, past) {
		t := r.Topology
		g := generation{t.Generation, i == 0, t.UpdatedAt, t.UpdatedBy, t.Reason, t.Model.Name, t.Prefill, t.Decode, map[string]any{}}
		f := topofile.Of(r)
		for _, ch := range topofile.Diff(topofile.File{}, f) {
			if _, set := f.Settings[ch.Path]; set {
				g.Settings[ch.Path] = ch.To
			}
		}
		list, a.names = append(list, g), append(a.names, strconv.FormatInt(t.Generation, 10))
	}
	a.data = list
	a.table = func(wide bool) *table {
		titles := []string{">GENERATION", "CHANGED", "BY", ">PREFILL", ">DECODE", "~MODEL", "~WHY"}
		if wide {
			titles = append(titles, "~SETTINGS")
		}
		t := newTable(titles...)
		for _, g := range list {
			at := g.UpdatedAt.UTC().Format(time.RFC3339)
			if inv.env.Streams.OutTTY {
				at = age(inv.env.Now().Sub(g.UpdatedAt)) + " ago"
			}
			number := strconv.FormatInt(g.Generation, 10)
			if g.Present {
				number = "now " + number
			}
			row := []string{number, at, orDash(g.UpdatedBy), strconv.Itoa(g.Prefill), strconv.Itoa(g.Decode), orDash(g.Model), orDash(g.Reason)}
			if wide {
				row = append(row, orDash(settingsText(g.Settings)))
			}
			t.add(row...)
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
func (f *factory) completeGenerations(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	f.ask(cmd, func(ctx context.Context, c *client.Cluster) {
		past, err := c.History(ctx)
		if err != nil {
			return
		}
		for _, r := range past {
			t := r.Topology
			out = append(out, cobra.CompletionWithDesc(strconv.FormatInt(t.Generation, 10), shape(t.Prefill, t.Decode)+" "+t.Model.Name))
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
