package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// diffCommand compares a topology file with what is declared.
type diffCommand struct {
	file string
	sets []string
}

func (f *factory) diff() *cobra.Command {
	o := &diffCommand{}
	cmd := f.command(verb{
		use: "diff -f <file>", short: "Show what a topology file would change", group: groupLook,
		long: `Compares the file with what is declared, field by field, and says which workers would
start, restart or leave, and what the nodes cannot carry out. The exit code is 0 when
nothing differs, 1 when something does, and 2 or 3 when they could not be compared.`,
		examples: []string{
			"dynctl diff -f topology.yaml",
			"dynctl diff -f topology.yaml --set decode=6 -o json",
			"dynctl diff -f topology.yaml || dynctl up -f topology.yaml",
		},
		see: []string{"dynctl up", "dynctl rollback"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.file, "file", "f", "", "topology file, - for standard input")
	fs.StringArrayVar(&o.sets, "set", nil, "field of a topology and its value, as decode.engine.max_num_seqs=8; may be given again")
	grouped(fs, "Topology", "file", "set")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml") // these fail for unknown flags only
	_ = cmd.RegisterFlagCompletionFunc("set", completeFields)
	return cmd
}

// diffResult is the answer as -o json prints it.
type diffResult struct {
	Cluster    string            `json:"cluster"`
	Namespace  string            `json:"namespace"`
	Generation int64             `json:"generation"` // 0 when nothing was ever declared
	Changes    []topofile.Change `json:"changes"`
	Effects    []string          `json:"effects"`
	// Impossible says why the nodes that are up cannot carry it out.
	Impossible []string `json:"impossible"`
}

func (o *diffCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	const action = "cannot compare"
	if o.file == "" {
		return &usageError{text: "name a topology file: -f FILE"}
	}
	to, src, err := inv.readTopology(o.file, action)
	if err != nil {
		return err
	}
	if err := inv.use(to, src.Name); err != nil {
		return err
	}
	for _, s := range o.sets {
		if err := to.Set(s, src); err != nil {
			return &usageError{text: "--set " + err.Error()}
		}
	}
	inv.tellFormer(&to)
	to.Complete()
	if problems := to.Problems(); len(problems) > 0 {
		return &usageError{text: "--set: " + problems[0].Error()}
	}
	if inv.stopped() {
		inv.note("cluster %s does not run: everything is new", inv.cfg.Cluster)
		return o.answer(inv, cluster.Revision{}, to, nil)
	}
	c, w, err := inv.watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	inv.cfg.Namespace = c.Namespace
	now, _, err := declared(ctx, c)
	if err != nil {
		return &failure{action: action, err: err, code: exitUnreachable}
	}
	return o.answer(inv, now, to, w.View().Impossible(to.Topology))
}

func (o *diffCommand) answer(inv *invocation, now cluster.Revision, to topofile.File, impossible []string) error {
	r := diffResult{
		Cluster: inv.cfg.Cluster, Namespace: inv.cfg.Namespace, Generation: now.Topology.Generation,
		Changes: topofile.Diff(topofile.Of(now), to), Effects: effects(now.Topology, to.Topology),
		Impossible: append([]string{}, impossible...),
	}
	a := answer{data: r}
	for _, ch := range r.Changes {
		a.names = append(a.names, ch.Path)
	}
	if len(r.Changes) == 0 {
		a.text = fmt.Sprintf("nothing would change in %s\n", r.Cluster)
		return inv.answer(a)
	}
	a.text = changeLines(r.Changes) + strings.Join(r.Effects, "\n") + "\n"
	for _, why := range r.Impossible {
		a.text += "impossible: " + why + "\n"
	}
	if err := inv.answer(a); err != nil {
		return err
	}
	return silent{exitFailed}
}

// changeLines prints changes: "~ decode.workers  4 → 6".
func changeLines(changes []topofile.Change) string {
	width := 0
	for _, ch := range changes {
		width = max(width, len(ch.Path))
	}
	var b strings.Builder
	for _, ch := range changes {
		switch {
		case ch.From == nil:
			fmt.Fprintf(&b, "+ %-*s  %s\n", width, ch.Path, fieldText(ch.To))
		case ch.To == nil:
			fmt.Fprintf(&b, "- %-*s  %s\n", width, ch.Path, fieldText(ch.From))
		default:
			fmt.Fprintf(&b, "~ %-*s  %s → %s\n", width, ch.Path, fieldText(ch.From), fieldText(ch.To))
		}
	}
	return b.String()
}

// fieldText is a value as it would stand in a file.
func fieldText(v any) string {
	if list, ok := v.([]string); ok {
		return "[" + strings.Join(list, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// effects says what a change of the topology does to workers.
func effects(from, to cluster.Topology) []string {
	out := []string{}
	for _, r := range []cluster.Role{cluster.RolePrefill, cluster.RoleDecode} {
		before, after := from.Count(r), to.Count(r)
		oldModel, oldEngine := from.Specs(r)
		newModel, newEngine := to.Specs(r)
		if both := min(before, after); both > 0 && (oldModel != newModel || oldEngine != newEngine) {
			line := plural(both, string(r)+" worker") + " restart"
			if both == 1 {
				line += "s"
			} else {
				line += ", one at a time"
			}
			out = append(out, line)
		}
		switch n := after - before; {
		case n == 1:
			out = append(out, plural(n, string(r)+" worker")+" starts")
		case n > 0:
			out = append(out, plural(n, string(r)+" worker")+" start")
		case n == -1:
			out = append(out, plural(-n, string(r)+" worker")+" drains and leaves")
		case n < 0:
			out = append(out, plural(-n, string(r)+" worker")+" drain and leave")
		}
	}
	if len(out) == 0 {
		out = append(out, "no worker restarts")
	}
	return out
}
