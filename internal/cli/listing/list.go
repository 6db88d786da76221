package listing

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Options list things of one kind, once or again and again.
type Options struct {
	Session *session.Session
	Kind    Lister
	Names   []string // empty: all
	Watch   bool
	// Of has the view hold the instances of a query, of whatever namespace; nil: those of
	// the session's namespace.
	Of *cluster.Endpoint
}

// of returns the query for the instances of the view.
func (o *Options) of(c *client.Cluster) cluster.Endpoint {
	if o.Of != nil {
		return *o.Of
	}
	return cluster.Endpoint{Namespace: c.Namespace}
}

// listTimeout bounds what one listing may ask of the stores.
const listTimeout = 10 * time.Second

// Run prints the list.
func (o *Options) Run(ctx context.Context) error {
	s := o.Session
	action := "cannot list " + o.Kind.plural()
	c, err := s.Connect(ctx, action)
	if err != nil {
		return err
	}
	if o.Watch {
		return o.follow(ctx, c)
	}
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	v, err := c.ViewOf(limited, o.of(c))
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	found, err := o.Kind.list(limited, Scene{s, c, v}, o.Names)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &exit.Failure{Action: action, Err: err}
	}
	return o.print(found)
}

// print writes what was found, and says what was not.
func (o *Options) print(found listed) error {
	out := o.Session.Out
	absent := o.absent(found)
	if absent != nil && len(found.missing) == len(o.Names) {
		return absent
	}
	if found.none != "" && out.Prose() {
		out.Note("%s", found.none)
	}
	if err := out.Answer(found.Answer); err != nil {
		return err
	}
	if found.gap != "" {
		out.Warn("%s", found.gap)
	}
	if found.below != nil && out.Format == "table" && !out.Quiet {
		found.below()
	}
	if absent != nil {
		out.Report(absent)
		return exit.Silent{Code: exit.Partly}
	}
	return nil
}

// absent is the error about names that nothing has; nil if all are there.
func (o *Options) absent(found listed) error {
	if len(found.missing) == 0 {
		return nil
	}
	what := o.Kind.plural()
	return &exit.Failure{
		Action: "cannot list " + human.Names(found.missing),
		Err:    fmt.Errorf("not among the %s of cluster %s", what, o.Session.Config.Cluster),
		Facts:  []string{what + ": " + human.Names(found.known)},
		Tries:  []string{"dynctl get " + what},
	}
}
