package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// setRole is the part of dynctl set that gives a worker another role.
type setRole struct {
	timeout time.Duration
	noWait  bool
	mode    string
}

func (o *setRole) flags(fs *pflag.FlagSet) {
	durationVar(fs, &o.timeout, "timeout", 5*time.Minute, "how long to wait for a worker's new role")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when a role is declared, with exit code 8")
	progressVar(fs, &o.mode)
	grouped(fs, "Waiting", "timeout", "no-wait", "progress")
}

// asked reports whether a command line begins with the name of a worker.
func (o *setRole) asked(args []string) bool {
	if len(args) == 0 {
		return false
	}
	_, err := cluster.WorkerNumber(args[0])
	return err == nil
}

// parse reads the role that a worker shall take.
func (o *setRole) parse(args []string) (cluster.Role, error) {
	tries := []string{"dynctl set " + args[0] + " role=prefill", "dynctl set " + args[0] + " role=decode"}
	if len(args) != 2 {
		return "", &usageError{text: "of a worker the role can be set, one at a time", tries: tries}
	}
	name, value, ok := strings.Cut(args[1], "=")
	if !ok || name != "role" {
		return "", &usageError{text: fmt.Sprintf("%q is not role=<role>: nothing else of a worker changes while it runs", args[1]), tries: tries}
	}
	role, err := cluster.ParseRole(value)
	if err == nil && role == cluster.RoleEncode {
		err = errors.New("workers cannot encode yet")
	}
	if err != nil {
		return "", &usageError{text: "role: " + err.Error(), tries: tries}
	}
	return role, nil
}

// setRoleResult is the outcome as -o json prints it.
type setRoleResult struct {
	Worker     string       `json:"worker"`
	From       cluster.Role `json:"from"`
	Role       cluster.Role `json:"role"`
	Prefill    int          `json:"prefill"`
	Decode     int          `json:"decode"`
	Moved      *int         `json:"moved"`
	DurationMS *int64       `json:"duration_ms"`
}

func (o *setRole) run(ctx context.Context, inv *invocation, args []string, dryRun bool) error {
	role, err := o.parse(args)
	if err != nil {
		return err
	}
	name := args[0]
	if why := inv.readOnly(); why != "" && !dryRun {
		return &failure{action: "cannot run " + inv.cmd.CommandPath(), err: errors.New("it changes the cluster, and " + why)}
	}
	action := fmt.Sprintf("cannot make %s a %s worker", name, role)
	c, w, err := inv.watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	v := w.View()
	a, ok := v.Assignments[name]
	if !ok {
		return inv.noWorker(action, name, v)
	}
	res := setRoleResult{Worker: name, From: a.Role, Role: role}
	if v.Topology != nil {
		res.Prefill, res.Decode = v.Topology.Prefill, v.Topology.Decode
	}
	if a.Role == role {
		return inv.answer(answer{data: res, names: []string{name}, text: fmt.Sprintf("%s is a %s worker already.\n", name, role)})
	}
	if dryRun {
		inv.say(fmt.Sprintf("would make %s a %s worker instead of a %s worker", name, role, a.Role))
		return nil
	}
	inv.lastServing(name, v)
	begin := inv.env.Now()
	topo, err := c.SetRole(ctx, name, role)
	if err != nil {
		return &failure{action: action, err: err, tries: []string{"dynctl ps"}}
	}
	res.Prefill, res.Decode = topo.Prefill, topo.Decode
	if o.noWait || a.Desire == cluster.DesireDrain {
		text := fmt.Sprintf("%s becomes a %s worker; %s has %s then.\n", name, role, c.Name, shape(topo.Prefill, topo.Decode))
		if a.Desire == cluster.DesireDrain {
			text = fmt.Sprintf("%s is drained, and a %s worker when it is resumed.\n", name, role)
		}
		if err := inv.answer(answer{data: res, names: []string{name}, text: text}); err != nil || !o.noWait {
			return err
		}
		return silent{exitAccepted}
	}
	if err := o.wait(ctx, inv, w, topo, &res); err != nil {
		return err
	}
	took := inv.env.Now().Sub(begin)
	ms := took.Milliseconds()
	res.DurationMS = &ms
	text := fmt.Sprintf("%s is a %s worker after %s", name, role, duration(took))
	if res.Moved != nil && *res.Moved > 0 {
		text += fmt.Sprintf(", %s moved to others", plural(*res.Moved, "sequence"))
	}
	return inv.answer(answer{data: res, names: []string{name}, text: fmt.Sprintf("%s; %s has %s.\n", text, c.Name, shape(topo.Prefill, topo.Decode))})
}

// wait watches until the worker serves in its new role.
func (o *setRole) wait(ctx context.Context, inv *invocation, w *client.Watch, topo cluster.Topology, res *setRoleResult) error {
	name, role := res.Worker, res.Role
	action := fmt.Sprintf("%s did not become a %s worker", name, role)
	show := inv.progress(o.mode)
	defer show.Close()
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	led := newLedger(inv.env.Now())
	before := restarts(w.View())
	var last cluster.Worker
	err := w.Until(waiting, lookEvery, func(v client.View) (bool, error) {
		a, ok := v.Assignments[name]
		switch {
		case !ok || a.Desire == cluster.DesireRemove:
			return false, &failure{action: action, err: errors.New("it was removed")}
		case a.Desire == cluster.DesireDrain:
			return false, &failure{action: action, err: errors.New("somebody drained it")}
		case a.Refused.Why != "" && a.Refused.Form.Role == role && a.Role != role:
			return false, &failure{
				action: action, err: errors.New(a.Refused.Why), facts: []string{fmt.Sprintf("it is a %s worker again", a.Role)},
				tries: []string{fmt.Sprintf("dynctl set %s role=%s   to take the order back", name, res.From), "dynctl rollback"},
			}
		case v.Topology != nil && v.Topology.Generation > topo.Generation && a.Role != role:
			return false, &failure{action: action, err: fmt.Errorf("%s declared another topology", orDash(v.Topology.UpdatedBy)), tries: []string{"dynctl ps"}}
		}
		last = v.Worker(name)
		if d := last.Drain; d != nil && last.State == cluster.StateDraining {
			moved := d.Moved
			res.Moved = &moved
		}
		done := a.Role == role && last.Role == role && last.State.Serving() && last.Generation == a.Generation
		row := led.worker(last, v.Nodes, done, inv.env.Now())
		if d := last.Drain; d != nil && last.State == cluster.StateDraining {
			row.Detail = drainText(d)
		}
		s := progress.Screen{
			Operation: "set", Subject: name, Title: fmt.Sprintf("%s  %s to %s", name, res.From, role), Rows: []progress.Row{row},
			Footer: fmt.Sprintf("ctrl-c stops watching only.  undo: dynctl set %s role=%s", name, res.From),
		}
		if done {
			s.Footer = ""
		}
		show.Show(s)
		if !done && last.State == cluster.StateFailed && last.Restarts > before[name] {
			return false, startFailure(last)
		}
		return done, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &interrupted{text: "stopped watching: " + name + " goes on changing its role", tries: []string{fmt.Sprintf("dynctl set %s role=%s   to take it back", name, res.From)}, err: err}
	case waiting.Err() != nil:
		f := &failure{
			action: fmt.Sprintf("%s is no %s worker after %s", name, role, duration(o.timeout)), err: fmt.Errorf("it is %s", stateText(last)), code: exitDeadline,
			facts: []string{"the work goes on"}, tries: []string{"dynctl ps", fmt.Sprintf("dynctl set %s role=%s   to take it back", name, res.From)},
		}
		if d := last.Drain; d != nil {
			f.facts = append(f.facts, drainText(d))
		}
		return f
	}
	return err
}
