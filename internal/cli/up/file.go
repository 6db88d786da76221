package up

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/topofile"
)

// readFile reads the topology file, if one is given.
func (o *Options) readFile(action string) (err error) {
	o.dir, o.home = o.Session.Env.Dir, o.Session.Env.Variables().Get("HOME")
	o.reason = declare.Reason(o.Session, o.Why)
	var said topofile.File
	for _, s := range o.Set {
		_ = said.Set(s, topofile.Source{Dir: o.dir, Home: o.home}) // what is wrong is told when it is used
	}
	declare.TellFormer(o.Session.Out, &said)
	if !o.given("file") {
		return nil
	}
	if o.File == "" {
		return &exit.UsageError{Text: "--file: no file given"}
	}
	var src topofile.Source
	if o.read, src, err = declare.ReadFile(o.Session, o.File, action); err != nil {
		return err
	}
	o.File = src.Name
	return declare.UseNamespace(o.Session, o.read, src.Name)
}

// showWhatIf simulates the load of the last hour on the topology as it is declared and as it would be.
func (o *Options) showWhatIf(ctx context.Context) error {
	c, v, err := o.Session.Look(ctx, upAction)
	if err != nil {
		return err
	}
	now, _, err := declare.Declared(ctx, c)
	if err != nil {
		return &exit.Failure{Action: upAction, Err: err}
	}
	next, err := o.desired(now)
	if err != nil {
		return err
	}
	return o.whatIf.Show(ctx, o.Session, c, v, topofile.Of(now), topofile.Of(next))
}

// agree asks before another model takes the place of the one that a running cluster serves.
func (o *Options) agree(ctx context.Context) error {
	names := o.File != "" || o.given("model") || o.given("served-model-name") || len(o.Set) > 0
	if !names || o.Yes || o.Session.Stopped() {
		return nil
	}
	c, err := o.Session.Connect(ctx, upAction)
	if err != nil {
		return err
	}
	now, _, err := declare.Declared(ctx, c)
	if err != nil {
		return &exit.Failure{Action: upAction, Err: err}
	}
	next, err := o.desired(now)
	if err != nil {
		return err
	}
	from, to := now.Topology, next.Topology
	if from.Workers() == 0 || to.Workers() == 0 || from.Model.Name == to.Model.Name {
		return nil
	}
	err = o.Session.Out.Confirm(o.Yes, "cannot serve "+to.Model.Name+" in cluster "+c.Name,
		fmt.Sprintf("Replace the model %s by %s, worker by worker? Requests that name %s will fail.", from.Model.Name, to.Model.Name, from.Model.Name))
	var refused *exit.Failure
	if errors.As(err, &refused) && o.given("model") {
		refused.Tries = append(refused.Tries, fmt.Sprintf("dynctl up -c %s-2 --port 8001 --model %s   for a second cluster", c.Name, human.ShellQuote(o.Model)))
	}
	return err
}
