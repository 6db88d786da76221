package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Options looks for what is wrong with this machine and with the cluster.
type Options struct {
	Session *session.Session

	Port       int
	Timeout    time.Duration
	ModelCheck string // model that is asked for what it has read; empty: none
	Report     string // file for an archive of it all; empty: none
}

// Command makes dynctl doctor.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "doctor", Short: "Check this machine and the cluster, and say what to do", Group: command.GroupLook,
		Long: `Checks what workers need of this machine, whether the cluster's services answer, the leases,
versions and clocks of its nodes, its workers, their model files, what frontends know of
their KV caches, the paths of KV blocks between them, each of which is tested, and the
frontends, with an answer of two tokens. Each check says ok, warn, fail, or skip where there
is nothing to check, for example when no cluster runs.

--model-check also proves the transfer of KV blocks, by what answers say: every decode
worker is asked for facts out of prompts that each prefill worker has read in its place. An
answer can only be right if the right blocks arrived whole. Where encode workers serve, they
are asked what is written on drawn pictures, too, which proves the transfer of embeddings
from each encode worker. The built-in models can answer; another one is named with
--model-check=NAME.

--report writes an archive for a bug report, besides: these findings, versions, settings,
topology, statuses, history, the events of three seconds, and the ends of logs. Secrets are
masked; still, look into it before you publish it. --report=FILE names it.

The exit code is 1 if a check fails, and 0 otherwise, also with warnings.`,
		Examples: []string{
			"dynctl doctor",
			"dynctl doctor -q          # names of the checks that failed",
			"dynctl doctor --report=bug.tar.gz",
		},
		See: []string{"dynctl ps", "dynctl logs", "dynctl top"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Count(fs, &o.Port, "port", 8000, "port that a frontend of this machine would take")
	command.Duration(fs, &o.Timeout, "timeout", 10*time.Second, "how long each check may take")
	fs.StringVar(&o.ModelCheck, "model-check", "", "ask the built-in model, or `NAME`, for facts that other workers have read and pictures that they have seen")
	fs.Lookup("model-check").NoOptDefVal = cluster.BuiltinModelName
	fs.StringVar(&o.Report, "report", "", "write an archive for a bug report, without secrets, to `FILE` or a name made of the time")
	fs.Lookup("report").NoOptDefVal = reportByTime
	return cmd
}

// Diagnosis is everything, as -o json prints it.
type Diagnosis struct {
	Cluster string          `json:"cluster"`
	Checks  []judge.Finding `json:"checks"`
	OK      int             `json:"ok"`
	Warned  int             `json:"warned"`
	Failed  int             `json:"failed"`
	Skipped int             `json:"skipped"`
}

// Run checks everything and prints the findings.
func (o *Options) Run(ctx context.Context) error {
	switch {
	case o.Port < 1 || o.Port > 65535:
		return &exit.UsageError{Text: fmt.Sprintf("--port: %d is not between 1 and 65535", o.Port)}
	case o.Timeout <= 0:
		return &exit.UsageError{Text: "--timeout: must be greater than 0"}
	}
	d := Diagnosis{Cluster: o.Session.Config.Cluster}
	var machine, rest []judge.Finding
	var wg sync.WaitGroup
	wg.Go(func() { machine = examine(ctx, o.Timeout, o.machineChecks()) })
	wg.Go(func() { rest = o.clusterFindings(ctx) })
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.Checks = append(machine, rest...)
	a := output.Answer{Data: &d, Table: func(wide bool) *output.Table { return checksTable(d.Checks, wide) }}
	for _, f := range d.Checks {
		switch f.Status {
		case judge.OK:
			d.OK++
		case judge.Warn:
			d.Warned++
		case judge.Skip:
			d.Skipped++
		default:
			d.Failed++
			a.Names = append(a.Names, f.Name)
		}
	}
	if o.Session.Out.Prose() && o.Session.Out.Streams.OutTTY {
		a.Table, a.Text = nil, diagnosisText(o.Session, d)
	}
	if err := o.Session.Out.Answer(a); err != nil {
		return err
	}
	if o.Report != "" {
		name, err := o.writeReport(ctx, d)
		if err != nil {
			return err
		}
		o.Session.Out.Note("report: %s; look into it before you publish it", name)
	}
	if d.Failed > 0 {
		return exit.Silent{Code: exit.Failed}
	}
	return nil
}
