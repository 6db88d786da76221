package cache

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Command is the verb for the workers' prefix caches.
func Command(a *command.App) *cobra.Command {
	return command.Group(command.Verb{
		Use: "cache <what>", Short: "Clear the KV caches of workers", Group: command.GroupWorkers,
		Long: "Workers keep the KV of earlier prompts, so that prompts that begin alike need less computation.",
		Examples: []string{
			"dynctl cache clear",
			"dynctl cache clear worker-3 worker-4",
			"dynctl cache clear --yes -o json",
		},
		See: []string{"dynctl get index", "dynctl explain prefix"},
	}, clearCommand(a))
}

// ClearOptions make workers forget their prefix caches.
type ClearOptions struct {
	Session *session.Session
	Workers []string // empty: all
	Timeout time.Duration
	Yes     bool
}

func clearCommand(a *command.App) *cobra.Command {
	o := &ClearOptions{}
	cmd := a.Command(command.Verb{
		Use: "clear [worker...]", Short: "Make workers forget the KV of earlier prompts", Changes: true,
		Long: `Workers forget which prompts their KV caches have; without names, all decode and prefill
workers do. Running requests go on. Later prompts are computed anew, so the time to
their first token rises until caches are warm again. The exit code is 5 if some of the workers
fail, and 1 if all do.`,
		Examples: []string{
			"dynctl cache clear                     # of all workers",
			"dynctl cache clear worker-3 --yes",
			"dynctl cache clear -y -o json | jq 'map(.blocks) | add'",
		},
		Args: command.Names("worker", true), Complete: complete.Workers(a),
		See: []string{"dynctl get index", "dynctl events --kv"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Workers = s, args
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Duration(fs, &o.Timeout, "timeout", 10*time.Second, "how long to wait for answers")
	fs.BoolVarP(&o.Yes, "yes", "y", false, "do not ask first")
	return cmd
}

// Run clears the caches and prints what each worker forgot.
func (o *ClearOptions) Run(ctx context.Context) error {
	s := o.Session
	if o.Timeout <= 0 {
		return &exit.UsageError{Text: "--timeout: must be greater than 0"}
	}
	what := human.Names(o.Workers)
	if len(o.Workers) == 0 {
		what = "all workers"
	}
	action := "cannot clear the cache of " + what
	c, v, err := s.Look(ctx, action)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, w := range v.Workers() {
		known[w.Name] = true
	}
	for _, name := range o.Workers {
		if !known[name] {
			return fleet.NoWorker(s, "cannot clear the cache of "+name, name, v)
		}
	}
	if len(known) == 0 {
		return &exit.Failure{Action: action, Err: errors.New("no workers in cluster " + s.Config.Cluster), Tries: []string{"dynctl up"}}
	}
	if err := s.Out.Confirm(o.Yes, action, "Clear the KV cache of "+what+"? Later prompts are computed anew."); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	done := c.ClearCaches(limited, v, o.Workers...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return report(s, done)
}

// report prints the outcomes; its error is the exit code.
func report(s *session.Session, done []client.ClearedCache) error {
	a := output.Answer{Data: done}
	failed := 0
	for _, d := range done {
		if d.Error != "" {
			failed++
			continue
		}
		a.Names = append(a.Names, d.Worker)
	}
	a.Table = func(wide bool) *output.Table {
		titles := []string{"WORKER", ">BLOCKS", "~RESULT"}
		if wide {
			titles = append(titles, "INSTANCE")
		}
		t := output.NewTable(titles...)
		for _, d := range done {
			row := []string{d.Worker, strconv.Itoa(d.Blocks), "cleared"}
			if d.Error != "" {
				row[1], row[2] = "-", d.Error
			}
			if wide {
				row = append(row, instanceText(d.InstanceID))
			}
			t.Add(row...)
			if d.Error != "" {
				t.Paint(2, s.Out.Palette().Bad)
			}
		}
		return t
	}
	if err := s.Out.Answer(a); err != nil {
		return err
	}
	switch {
	case failed == 0 && len(done) > 0:
		return nil
	case failed == len(done):
		return exit.Silent{Code: exit.Failed}
	}
	return exit.Silent{Code: exit.Partly}
}

func instanceText(id cluster.InstanceID) string {
	if id == 0 {
		return "-"
	}
	return id.String()
}
