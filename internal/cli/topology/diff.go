package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/whatif"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/topofile"
)

// DiffOptions compares a topology file with what is declared.
type DiffOptions struct {
	Session *session.Session

	File   string
	Set    []string
	whatIf whatif.Options
}

// DiffCommand makes dynctl diff.
func DiffCommand(a *command.App) *cobra.Command {
	o := &DiffOptions{}
	cmd := a.Command(command.Verb{
		Use: "diff -f <file>", Short: "Show what a topology file would change", Group: command.GroupLook,
		Long: `Compares the file with what is declared, field by field, and says which workers would
start, restart or leave, and what the nodes cannot carry out. The exit code is 0 when
nothing differs, 1 when something does, and 2 or 3 when they could not be compared.

--what-if simulates the load of the last hour on the topology that is declared and on that of the
file, and prints both beside each other; the exit code is then 0.`,
		Examples: []string{
			"dynctl diff -f topology.yaml",
			"dynctl diff -f topology.yaml --what-if   # what it would have done in the last hour, simulated",
			"dynctl diff -f topology.yaml || dynctl up -f topology.yaml",
		},
		See: []string{"dynctl up", "dynctl rollback"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.File, "file", "f", "", "topology file, - for standard input")
	fs.StringArrayVar(&o.Set, "set", nil, "field of a topology and its value, as decode.engine.max_num_seqs=8; may be given again")
	command.Grouped(fs, "Topology", "file", "set")
	o.whatIf.AddFlags(fs, "print both beside each other")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml") // these fail for unknown flags only
	_ = cmd.RegisterFlagCompletionFunc("set", declare.CompleteFields)
	return cmd
}

// DiffResult is the answer as -o json prints it.
type DiffResult struct {
	Cluster    string            `json:"cluster"`
	Namespace  string            `json:"namespace"`
	Generation int64             `json:"generation"` // 0 when nothing was ever declared
	Changes    []topofile.Change `json:"changes"`
	Effects    []string          `json:"effects"`
	// Impossible says why the nodes that are up cannot carry it out.
	Impossible []string `json:"impossible"`
}

// Run prints the difference; its exit code says whether there is one.
func (o *DiffOptions) Run(ctx context.Context) error {
	const action = "cannot compare"
	if o.File == "" {
		return &exit.UsageError{Text: "name a topology file: -f FILE"}
	}
	to, src, err := declare.ReadFile(o.Session, o.File, action)
	if err != nil {
		return err
	}
	if err := declare.UseNamespace(o.Session, to, src.Name); err != nil {
		return err
	}
	for _, s := range o.Set {
		if err := to.Set(s, src); err != nil {
			return &exit.UsageError{Text: "--set " + err.Error()}
		}
	}
	declare.TellFormer(o.Session.Out, &to)
	to.Complete()
	if problems := to.Problems(); len(problems) > 0 {
		return &exit.UsageError{Text: "--set: " + problems[0].Error()}
	}
	if o.Session.Stopped() && !o.whatIf.WhatIf {
		o.Session.Out.Note("cluster %s does not run: everything is new", o.Session.Config.Cluster)
		return o.answer(cluster.Revision{}, to, nil)
	}
	c, w, err := o.Session.Watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	o.Session.Config.Namespace = c.Namespace
	now, _, err := declare.Declared(ctx, c)
	if err != nil {
		return &exit.Failure{Action: action, Err: err, Code: exit.Unreachable}
	}
	if o.whatIf.WhatIf {
		return o.whatIf.Show(ctx, o.Session, c, w.View(), topofile.Of(now), to)
	}
	impossible := w.View().Impossible(to.Topology)
	if err := c.CheckSight(ctx, now.Topology, to.Topology); errors.Is(err, client.ErrNoSight) {
		impossible = append(impossible, err.Error())
	} else if err != nil {
		return &exit.Failure{Action: action, Err: err, Code: exit.Unreachable}
	}
	return o.answer(now, to, impossible)
}

func (o *DiffOptions) answer(now cluster.Revision, to topofile.File, impossible []string) error {
	r := DiffResult{
		Cluster: o.Session.Config.Cluster, Namespace: o.Session.Config.Namespace, Generation: now.Topology.Generation,
		Changes: topofile.Diff(topofile.Of(now), to), Effects: declare.Effects(now.Topology, to.Topology),
		Impossible: append([]string{}, impossible...),
	}
	a := output.Answer{Data: r}
	for _, ch := range r.Changes {
		a.Names = append(a.Names, ch.Path)
	}
	if len(r.Changes) == 0 {
		a.Text = fmt.Sprintf("nothing would change in %s\n", r.Cluster)
		return o.Session.Out.Answer(a)
	}
	a.Text = declare.ChangeLines(r.Changes) + strings.Join(r.Effects, "\n") + "\n"
	for _, why := range r.Impossible {
		a.Text += "impossible: " + why + "\n"
	}
	if err := o.Session.Out.Answer(a); err != nil {
		return err
	}
	return exit.Silent{Code: exit.Failed}
}
