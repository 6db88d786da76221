package drain

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// sleepOptions put the servers of workers to sleep.
type sleepOptions struct {
	session  *session.Session
	targets  []fleet.Target
	level    int
	deadline time.Duration
	noWait   bool
	dryRun   bool
	progress string
}

// SleepCommand makes dynctl sleep.
func SleepCommand(a *command.App) *cobra.Command {
	o := &sleepOptions{}
	cmd := a.Command(command.Verb{
		Use: "sleep <worker>...", Short: "Drain workers of vLLM and SGLang, and put their servers to sleep", Group: command.GroupWorkers, Changes: true,
		Long: `The worker takes no new requests and finishes what it has. When its server says that it
runs nothing, the server gives the memory of its device back: the KV cache is lost. At
level 1 the host keeps the weights; at level 2 the server loads them again when it wakes.
It sleeps until dynctl wake, also when its node restarts.`,
		Examples: []string{
			"dynctl sleep worker-7",
			"dynctl sleep worker-7 worker-8 --level 2   # give the host's memory back, too",
			"dynctl sleep worker-7 --deadline 1m        # how long to wait for its requests",
		},
		Args: command.Names("worker", false), Complete: complete.From(a, sleepers),
		See: []string{"dynctl wake", "dynctl drain", "dynctl ps"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.session, o.targets = s, fleet.Targets(args)
			return o
		},
	})
	cmd.Annotations[command.RareAnnotation] = "true" // the help of dynctl drain names it
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&o.level, "level", cluster.SleepLight, "1 keeps the weights in the host's memory, 2 drops them")
	command.Duration(fs, &o.deadline, "deadline", 5*time.Minute, "how long to wait for each")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the order is given, with exit code 8")
	command.Progress(fs, &o.progress)
	fs.BoolVar(&o.dryRun, "dry-run", false, "print what would be ordered, and order nothing")
	command.Grouped(fs, "Waiting", "deadline", "no-wait", "progress", "dry-run")
	_ = cmd.RegisterFlagCompletionFunc("level", complete.Words("1", "2")) // fails for unknown flags only
	return cmd
}

// sleepers are the workers whose engines can sleep.
func sleepers(v client.View) (out []cobra.Completion) {
	for _, w := range v.Workers() {
		if v.Assignments[w.Name].Engine.Sleeps() {
			out = append(out, cobra.CompletionWithDesc(w.Name, string(w.Role)+" "+string(w.State)))
		}
	}
	return out
}

// Run gives the orders and waits until the servers sleep.
func (o *sleepOptions) Run(ctx context.Context) error {
	if o.level != cluster.SleepLight && o.level != cluster.SleepDeep {
		return &exit.UsageError{Text: fmt.Sprintf("--level: %d is not 1 or 2", o.level)}
	}
	if o.deadline <= 0 {
		return &exit.UsageError{Text: "--deadline: requests are not cut off here; dynctl drain --deadline 0 does that"}
	}
	if err := onlyWorkers("sleep", o.targets); err != nil {
		return err
	}
	if o.dryRun {
		return planOrders(ctx, o.session, "sleep", o.targets, o.plan)
	}
	c, w, err := o.session.Watch(ctx, "cannot sleep "+fleet.List(o.targets))
	if err != nil {
		return err
	}
	defer w.Close()
	fleet.Resolve(w.View(), o.targets)
	return orders{o.session, o.targets, o.noWait}.run(ctx, func(ctx context.Context, t fleet.Target) (outcome, error) {
		d := &drainer{drainOrder: drainOrder{session: o.session, c: c, watch: w, name: t.Name, limit: o.deadline, noWait: o.noWait, mode: o.progress}, level: o.level}
		r, err := d.run(ctx)
		r.Worker = t.Name
		return &r, err
	})
}

// onlyWorkers refuses nodes.
func onlyWorkers(verb string, targets []fleet.Target) error {
	for _, t := range targets {
		if t.Node {
			return &exit.UsageError{Text: "dynctl " + verb + " takes workers, and " + t.String() + " is a node"}
		}
	}
	return nil
}

// plan says what the order would do to a worker.
func (o *sleepOptions) plan(w cluster.Worker, a cluster.Assignment) string {
	switch {
	case a.Desire == cluster.DesireRemove:
		return w.Name + " is being removed already"
	case a.SleepLevel() > 0:
		return fmt.Sprintf("would leave %s as it is: %s", w.Name, w.State)
	}
	if err := client.CanSleep(a.Engine); err != nil {
		return fmt.Sprintf("would leave %s as it is: %v", w.Name, err)
	}
	return planDrain(w, cluster.Assignment{Desire: cluster.DesireRun}) + fmt.Sprintf("; then its server would sleep at level %d", o.level)
}

// WakeCommand makes dynctl wake.
func WakeCommand(a *command.App) *cobra.Command {
	o := &ResumeOptions{verb: "wake"}
	cmd := a.Command(command.Verb{
		Use: "wake <worker>...", Short: "Wake the servers of sleeping workers", Group: command.GroupWorkers, Changes: true,
		Long: `The server takes its memory again and, after level 2, loads its weights. When it is well,
its worker serves. That also wakes a server that somebody else has put to sleep, and takes
a sleep back that is still to come.`,
		Examples: []string{
			"dynctl wake worker-7",
			"dynctl wake worker-7 worker-8 --timeout 10m   # of large weights from a disk",
			"dynctl wake worker-7 --no-wait",
		},
		Args: command.Names("worker", false), Complete: complete.From(a, sleepers),
		See: []string{"dynctl sleep", "dynctl resume", "dynctl ps"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Targets = s, fleet.Targets(args)
			return o
		},
	})
	cmd.Annotations[command.RareAnnotation] = "true" // the help of dynctl sleep names it
	o.flags(cmd.Flags())
	return cmd
}
