package set

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// RoleOptions give a worker another role.
type RoleOptions struct {
	command.Waiting

	Session *session.Session
	Args    []string // the worker, and role=<role>
	DryRun  bool
}

func (o *RoleOptions) flags(fs *pflag.FlagSet) {
	o.AddFlags(fs, 5*time.Minute, "how long to wait for a worker's new role", "a role is declared")
}

// namesWorker reports whether a command line begins with the name of a worker.
func namesWorker(args []string) bool {
	if len(args) == 0 {
		return false
	}
	_, err := cluster.WorkerNumber(args[0])
	return err == nil
}

// parse reads the role that a worker shall take.
func (o *RoleOptions) parse() (cluster.Role, error) {
	args := o.Args
	tries := []string{"dynctl set " + args[0] + " role=prefill", "dynctl set " + args[0] + " role=decode"}
	if len(args) != 2 {
		return "", &exit.UsageError{Text: "of a worker only the role can be set, one worker at a time", Tries: tries}
	}
	name, value, ok := strings.Cut(args[1], "=")
	if !ok || name != "role" {
		return "", &exit.UsageError{Text: fmt.Sprintf("%q is not role=<role>: only the role of a worker can change while it runs", args[1]), Tries: tries}
	}
	role, err := cluster.ParseRole(value)
	switch {
	case err != nil:
		return "", &exit.UsageError{Text: "role: " + err.Error(), Tries: tries}
	case !role.HoldsKV():
		return "", &exit.UsageError{Text: "role: " + string(role) + " workers have only the vision tower: no worker can become one", Tries: []string{scaleEncode}}
	}
	return role, nil
}

// scaleEncode is what is done in place of a change of role.
const scaleEncode = "dynctl scale --encode N"

// RoleResult is the outcome as -o json prints it.
type RoleResult struct {
	Worker     string       `json:"worker"`
	From       cluster.Role `json:"from"`
	Role       cluster.Role `json:"role"`
	Prefill    int          `json:"prefill"`
	Decode     int          `json:"decode"`
	Encode     int          `json:"encode"`
	Moved      *int         `json:"moved"`
	DurationMS *int64       `json:"duration_ms"`
}

// Run changes the role and waits until the worker serves in it.
func (o *RoleOptions) Run(ctx context.Context) error {
	role, err := o.parse()
	if err != nil {
		return err
	}
	name := o.Args[0]
	if !o.DryRun {
		if err := o.Session.Writable(); err != nil {
			return err
		}
	}
	action := fmt.Sprintf("cannot make %s a %s worker", name, role)
	c, w, err := o.Session.Watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	v := w.View()
	a, err := fleet.Worker(o.Session, action, name, v)
	if err != nil {
		return err
	}
	res := RoleResult{Worker: name, From: a.Role, Role: role}
	if v.Topology != nil {
		res.Prefill, res.Decode, res.Encode = v.Topology.Prefill, v.Topology.Decode, v.Topology.Encode
	}
	if a.Role == role {
		return o.Session.Out.Answer(output.Answer{Data: res, Names: []string{name}, Text: fmt.Sprintf("%s is a %s worker already.\n", name, role)})
	}
	if err := client.Flips(a.Role, role); err != nil {
		return &exit.Failure{Action: action, Err: err, Tries: []string{scaleEncode}}
	}
	if o.DryRun {
		o.Session.Out.Say(fmt.Sprintf("would make %s a %s worker instead of a %s worker", name, role, a.Role))
		return nil
	}
	fleet.LastServing(o.Session, name, v)
	begin := o.Session.Out.Now()
	topo, err := c.SetRole(ctx, name, role)
	if err != nil {
		return &exit.Failure{Action: action, Err: err, Tries: []string{"dynctl ps"}}
	}
	res.Prefill, res.Decode, res.Encode = topo.Prefill, topo.Decode, topo.Encode
	if o.NoWait || a.Desire == cluster.DesireDrain {
		text := fmt.Sprintf("%s becomes a %s worker; %s has %s then.\n", name, role, c.Name, human.Shape(topo))
		if a.Desire == cluster.DesireDrain {
			text = fmt.Sprintf("%s is drained, and a %s worker when it is resumed.\n", name, role)
		}
		if err := o.Session.Out.Answer(output.Answer{Data: res, Names: []string{name}, Text: text}); err != nil || !o.NoWait {
			return err
		}
		return exit.Silent{Code: exit.Accepted}
	}
	if err := o.wait(ctx, w, topo, &res); err != nil {
		return err
	}
	took := o.Session.Out.Now().Sub(begin)
	ms := took.Milliseconds()
	res.DurationMS = &ms
	text := fmt.Sprintf("%s is a %s worker after %s", name, role, human.Duration(took))
	if res.Moved != nil && *res.Moved > 0 {
		text += fmt.Sprintf(", %s moved to others", human.Plural(*res.Moved, "sequence"))
	}
	return o.Session.Out.Answer(output.Answer{Data: res, Names: []string{name}, Text: fmt.Sprintf("%s; %s has %s.\n", text, c.Name, human.Shape(topo))})
}

// wait watches until the worker serves in its new role.
func (o *RoleOptions) wait(ctx context.Context, w *client.Watch, topo cluster.Topology, res *RoleResult) error {
	name, role := res.Worker, res.Role
	action := fmt.Sprintf("%s did not become a %s worker", name, role)
	led := settle.NewLedger(o.Session.Out.Now())
	before := settle.Restarts(w.View())
	var last cluster.Worker
	back := fmt.Sprintf("dynctl set %s role=%s   to take it back", name, res.From)
	watching := settle.Watching{
		Out: o.Session.Out, Progress: o.Progress, Timeout: o.Timeout,
		Stopped: exit.Stopped{Text: "stopped watching: " + name + " goes on changing its role", Tries: []string{back}},
		Late: func() *exit.Failure {
			f := &exit.Failure{
				Action: fmt.Sprintf("%s is no %s worker after %s", name, role, human.Duration(o.Timeout)), Err: fmt.Errorf("it is %s", human.State(last)),
				Facts: []string{"the work goes on"}, Tries: []string{"dynctl ps", back},
			}
			if last.Drain != nil {
				f.Facts = append(f.Facts, fleet.DrainText(last))
			}
			return f
		},
	}
	return watching.Until(ctx, w, func(v client.View) (s progress.Screen, done bool, err error) {
		a, ok := v.Assignments[name]
		switch {
		case !ok || a.Desire == cluster.DesireRemove:
			return s, false, &exit.Failure{Action: action, Err: errors.New("it was removed")}
		case a.Desire == cluster.DesireDrain:
			return s, false, &exit.Failure{Action: action, Err: errors.New("it was drained meanwhile")}
		case a.Refused.Why != "" && a.Refused.Form.Role == role && a.Role != role:
			return s, false, &exit.Failure{
				Action: action, Err: errors.New(a.Refused.Why), Facts: []string{fmt.Sprintf("it is a %s worker again", a.Role)},
				Tries: []string{fmt.Sprintf("dynctl set %s role=%s   to take the order back", name, res.From), "dynctl rollback"},
			}
		case v.Topology != nil && v.Topology.Generation > topo.Generation && a.Role != role:
			return s, false, &exit.Failure{Action: action, Err: fmt.Errorf("%s declared another topology", human.OrDash(v.Topology.UpdatedBy)), Tries: []string{"dynctl ps"}}
		}
		last = v.Worker(name)
		if d := last.Drain; d != nil && last.State == cluster.StateDraining {
			moved := d.Moved
			res.Moved = &moved
		}
		done = a.Role == role && last.Role == role && last.State.Serving() && last.Generation == a.Generation
		row := led.Worker(last, v.Nodes, done, o.Session.Out.Now())
		if last.Drain != nil && last.State == cluster.StateDraining {
			row.Detail = fleet.DrainText(last)
		}
		s = progress.Screen{
			Operation: "set", Subject: name, Title: fmt.Sprintf("%s  %s to %s", name, res.From, role), Rows: []progress.Row{row},
			Footer: fmt.Sprintf("ctrl-c stops watching only.  undo: dynctl set %s role=%s", name, res.From),
		}
		if !done && last.State == cluster.StateFailed && last.Restarts > before[name] {
			err = fleet.StartFailure(last)
		}
		return s, done, err
	})
}
