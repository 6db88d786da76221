package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// ResumeOptions take drains of workers and nodes back.
type ResumeOptions struct {
	command.Waiting // for each worker

	Session *session.Session
	Targets []fleet.Target
	DryRun  bool

	verb string // resume, uncordon or wake
}

// ResumeCommand makes dynctl resume.
func ResumeCommand(a *command.App) *cobra.Command {
	o := &ResumeOptions{verb: "resume"}
	cmd := a.Command(command.Verb{
		Use: "resume {<worker> | node/<name>}...", Short: "Take drains back, and start drained workers again", Group: command.GroupWorkers, Changes: true,
		Long: `A worker that still drains goes on where it is; a drained one starts again, and one that
waits for its successor stays. A drained node takes workers again: those that have not
left it stay, others come back when it has been there for a while. The command returns
when they and those that had no place serve; uncordon does not wait.`,
		Examples: []string{
			"dynctl resume worker-3 worker-4",
			"dynctl resume node/host-2",
			"dynctl resume worker-7 --no-wait",
		},
		Args: command.Names("worker", false), Complete: complete.Targets(a),
		See: []string{"dynctl drain", "dynctl ps"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Targets = s, fleet.Targets(args)
			return o
		},
	})
	o.flags(cmd.Flags())
	return cmd
}

func (o *ResumeOptions) flags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	o.AddFlags(fs, 2*time.Minute, "how long to wait for each worker", "the order is given")
	fs.BoolVar(&o.DryRun, "dry-run", false, "print what would be ordered, and order nothing")
	command.Grouped(fs, "Waiting", "dry-run")
}

// resumeResult is the outcome for one worker, as -o json prints it.
type resumeResult struct {
	Worker     string        `json:"worker,omitempty"`
	Node       string        `json:"node,omitempty"`
	State      cluster.State `json:"state,omitempty"`
	DurationMS *int64        `json:"duration_ms"`
	Error      string        `json:"error,omitempty"`

	sentence string
}

func (r *resumeResult) failed(err error) { r.Error = err.Error() }

func (r *resumeResult) said() string { return r.sentence }

// Run gives the orders and waits until the workers serve.
func (o *ResumeOptions) Run(ctx context.Context) error {
	if o.verb == "wake" {
		if err := onlyWorkers(o.verb, o.Targets); err != nil {
			return err
		}
	}
	if o.DryRun {
		return planOrders(ctx, o.Session, o.verb, o.Targets, planResume)
	}
	c, w, err := o.Session.Watch(ctx, "cannot "+o.verb+" "+fleet.List(o.Targets))
	if err != nil {
		return err
	}
	defer w.Close()
	fleet.Resolve(w.View(), o.Targets)
	return orders{o.Session, o.Targets, o.NoWait}.run(ctx, func(ctx context.Context, t fleet.Target) (outcome, error) {
		if t.Node {
			r, err := o.node(ctx, c, w, t)
			return &r, err
		}
		r, err := o.one(ctx, c, w, t.Name)
		r.Worker = t.Name
		return &r, err
	})
}

// node lets a node take workers again.
func (o *ResumeOptions) node(ctx context.Context, c *client.Cluster, w *client.Watch, t fleet.Target) (resumeResult, error) {
	action := "cannot " + o.verb + " " + t.String()
	r := resumeResult{Node: t.Name}
	v := w.View()
	n, err := fleet.Node(o.Session, action, t.Name, v)
	if err != nil {
		return r, err
	}
	if _, cordoned := v.Cordons[n.ID]; !cordoned {
		r.sentence = t.Name + " takes workers already."
		return r, nil
	}
	if err := c.Uncordon(ctx, n.ID); err != nil {
		return r, &exit.Failure{Action: action, Err: err}
	}
	r.sentence = t.Name + " takes workers again."
	if o.NoWait || o.verb != "resume" {
		return r, nil
	}
	return r, o.settled(ctx, w, n)
}

// settled waits until the workers of a node serve that takes workers again, and those that
// had no place while it did not.
func (o *ResumeOptions) settled(ctx context.Context, w *client.Watch, n cluster.Node) error {
	begin := o.Session.Out.Now()
	led := settle.NewLedger(begin)
	var missing []cluster.Worker
	watching := settle.Watching{
		Out: o.Session.Out, Progress: o.Progress, Timeout: o.Timeout,
		Stopped: exit.Stopped{Text: "stopped watching: " + n.Name + " takes workers again"},
		Late: func() *exit.Failure {
			f := &exit.Failure{
				Action: fmt.Sprintf("%s takes workers again, which do not serve after %s", n.Name, human.Duration(o.Session.Out.Now().Sub(begin))),
				Err:    fmt.Errorf("%s left", human.Plural(len(missing), "worker")), Tries: []string{"dynctl ps", "dynctl logs"},
			}
			for _, m := range missing {
				f.Facts = append(f.Facts, m.Name+" is "+human.State(m))
			}
			return f
		},
	}
	return watching.Until(ctx, w, func(v client.View) (s progress.Screen, done bool, err error) {
		_, cordoned := v.Cordons[n.ID]
		missing = missing[:0]
		for _, wk := range v.Workers() {
			a, ok := v.Assignments[wk.Name]
			if !ok || a.Desire != cluster.DesireRun || a.Node != "" && a.Node != n.ID {
				continue
			}
			serves := a.Node != "" && wk.State.Serving() && wk.Generation == a.Generation
			if !serves {
				missing = append(missing, wk)
			}
			s.Rows = append(s.Rows, led.Worker(wk, v.Nodes, serves, o.Session.Out.Now()))
		}
		s.Operation, s.Subject, s.Title, s.Footer = "resume", n.Name, n.Name+"  node  resuming", settle.Footer
		return s, !cordoned && len(missing) == 0, nil
	})
}

// one resumes one worker and waits until it serves.
func (o *ResumeOptions) one(ctx context.Context, c *client.Cluster, w *client.Watch, name string) (resumeResult, error) {
	action := "cannot " + o.verb + " " + name
	v := w.View()
	a, err := fleet.Worker(o.Session, action, name, v)
	if err != nil {
		return resumeResult{}, err
	}
	if o.verb == "wake" {
		if err := client.CanSleep(a.Engine); err != nil {
			return resumeResult{}, &exit.Failure{Action: action, Err: err}
		}
	}
	before := v.Status[name]
	if a.Desire == cluster.DesireRun && before.State.Serving() && !a.Replace {
		return resumeResult{State: before.State, sentence: name + " serves already."}, nil
	}
	begin := o.Session.Out.Now()
	give := c.Resume
	if before.State == cluster.StateSleeping {
		give = c.Wake
	} else if o.verb == "wake" && a.SleepLevel() == 0 {
		return resumeResult{}, &exit.Failure{Action: action, Err: fmt.Errorf("it is %s, and does not sleep", before.State), Tries: []string{"dynctl resume " + name, "dynctl ps"}}
	}
	if err := give(ctx, name); err != nil {
		return resumeResult{}, &exit.Failure{Action: action, Err: err}
	}
	if o.NoWait {
		return resumeResult{State: before.State, sentence: name + " " + o.verb + "s."}, nil
	}
	doing := "resuming"
	if o.verb == "wake" {
		doing = "waking"
	}
	led := settle.NewLedger(begin)
	var last cluster.Worker
	obeyed := false
	watching := settle.Watching{
		Out: o.Session.Out, Progress: o.Progress, Timeout: o.Timeout,
		Stopped: exit.Stopped{Text: "stopped watching: " + name + " goes on starting"},
		Late: func() *exit.Failure {
			return &exit.Failure{
				Action: fmt.Sprintf("%s does not serve after %s", name, human.Duration(o.Session.Out.Now().Sub(begin))), Err: fmt.Errorf("it is %s", human.State(last)),
				Facts: []string{"it goes on starting"}, Tries: []string{"dynctl logs " + name, "dynctl ps"},
			}
		},
	}
	err = watching.Until(ctx, w, func(v client.View) (s progress.Screen, done bool, err error) {
		a, ok := v.Assignments[name]
		if !ok {
			return s, false, &exit.Failure{Action: action, Err: errors.New("it was removed")}
		}
		obeyed = obeyed || a.Desire == cluster.DesireRun
		if obeyed && a.Desire != cluster.DesireRun {
			return s, false, &exit.Failure{Action: action, Err: errors.New("it was drained again meanwhile")}
		}
		last = v.Worker(name)
		done = obeyed && !a.Replace && last.State.Serving() && last.Generation == a.Generation
		s = progress.Screen{
			Operation: o.verb, Subject: name, Title: name + "  " + string(last.Role) + "  " + doing,
			Rows: []progress.Row{led.Worker(last, v.Nodes, done, o.Session.Out.Now())}, Footer: settle.Footer,
		}
		if !done && obeyed && last.State == cluster.StateFailed && last.Restarts > before.Restarts {
			err = fleet.StartFailure(last)
		}
		return s, done, err
	})
	if err != nil {
		return resumeResult{State: last.State}, err
	}
	took := o.Session.Out.Now().Sub(begin)
	ms := took.Milliseconds()
	return resumeResult{State: last.State, DurationMS: &ms, sentence: fmt.Sprintf("%s serves again after %s.", name, human.Duration(took))}, nil
}
