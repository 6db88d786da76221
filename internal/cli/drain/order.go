package drain

import (
	"context"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// outcome is the result of an order to one target, as -o json prints it.
type outcome interface {
	// failed notes why the order was not carried out.
	failed(err error)
	// said is the sentence for people; empty if there is none.
	said() string
}

// orders carries out an order about several targets, one after the other.
type orders struct {
	session *session.Session
	targets []fleet.Target
	noWait  bool
}

// run calls one for each target, prints the outcomes and chooses the exit code. Errors of
// single targets are told as they come when there are several.
func (o orders) run(ctx context.Context, one func(context.Context, fleet.Target) (outcome, error)) error {
	out := o.session.Out
	results := []outcome{}
	a := output.Answer{}
	var errs []error
	for _, t := range o.targets {
		r, err := one(ctx, t)
		if err != nil && ctx.Err() != nil {
			return err
		}
		switch {
		case err != nil:
			r.failed(err)
			if len(o.targets) > 1 {
				out.Report(err)
			}
		case r.said() != "" && out.Prose():
			out.Say(r.said())
		}
		if err == nil {
			a.Names = append(a.Names, t.String())
		}
		results, errs = append(results, r), append(errs, err)
	}
	if a.Data = results; !out.Prose() {
		if err := out.Answer(a); err != nil {
			return err
		}
	}
	if err := exit.Several(errs); err != nil || !o.noWait {
		return err
	}
	return exit.Silent{Code: exit.Accepted}
}
