package profile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
)

const teaching = "cannot teach the planner"

// pupil checks, before anything is measured, that the cluster has the model of --teach.
func (o *Options) pupil(ctx context.Context) error {
	if o.Teach == "" {
		return nil
	}
	if err := o.Session.Writable(); err != nil {
		return err
	}
	_, v, err := o.Session.Look(ctx, teaching)
	if err != nil {
		return err
	}
	t := cluster.Topology{}
	if v.Topology != nil {
		t = *v.Topology
	}
	if names := t.ModelNames(); !slices.Contains(names, o.Teach) {
		return &exit.Failure{
			Action: teaching, Err: fmt.Errorf("the cluster has no model %s", o.Teach), Facts: []string{"models: " + human.OrDash(strings.Join(names, ", "))},
			Tries: []string{"dynctl get topology -o yaml"},
		}
	}
	return nil
}

// teach writes the profile where the planner finds it.
func (o *Options) teach(ctx context.Context, t *target, p *profile.Profile) error {
	if o.Teach == "" {
		return nil
	}
	c, err := o.Session.Connect(ctx, teaching)
	if err == nil {
		err = c.Teach(ctx, profile.Taught{Model: o.Teach, Time: o.Session.Out.Now(), Server: t.subject.Server, Profile: *p})
	}
	if err != nil {
		return &exit.Failure{Action: teaching, Err: err}
	}
	o.Session.Out.Note("the planner takes workers of %s to be as fast as %s, while they do not show it themselves", o.Teach, t.subject.Server)
	return nil
}

// forget has the planner forget a measured profile.
func (o *Options) forget(ctx context.Context) error {
	const action = "cannot have the planner forget a profile"
	if err := o.Session.Writable(); err != nil {
		return err
	}
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	had, err := c.Unteach(ctx, o.Forget)
	switch {
	case err != nil:
		return &exit.Failure{Action: action, Err: err}
	case !had:
		o.Session.Out.Note("the planner had no measured profile of %s", o.Forget)
		return nil
	}
	o.Session.Out.Note("the planner goes by what workers of %s show", o.Forget)
	return nil
}
