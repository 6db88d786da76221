package down

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/statedir"
)

const purgeAction = "cannot delete what the cluster left"

// traces are the paths that a purge deletes.
func (d *downturn) traces() ([]string, error) {
	paths, err := d.local.Traces()
	if err != nil {
		return nil, &exit.Failure{Action: purgeAction, Err: err}
	}
	models, err := statedir.SharedModels(d.session.Config.StateDir, d.local.Name)
	if err != nil {
		return nil, &exit.Failure{Action: purgeAction, Err: err}
	}
	return append(paths, models...), nil
}

// mayPurge asks before anything is stopped, and refuses where nodes would go on without
// the stores that are deleted.
func (d *downturn) mayPurge(ctx context.Context, running []launch.Running) error {
	switch {
	case d.session.External():
		return &exit.Failure{
			Action: purgeAction, Err: errors.New("its stores do not belong to this machine"), Code: exit.Usage,
			Tries: []string{"dynctl down, and on each machine end dynamod and delete " + d.local.Path},
		}
	case d.session.Named && len(running) > 0:
		return &exit.Failure{Action: purgeAction, Err: errors.New("--purge is for all namespaces of a cluster: leave out --namespace"), Code: exit.Usage}
	}
	if len(running) > 0 {
		if err := d.nodesElsewhere(ctx, running); err != nil {
			return err
		}
	}
	paths, err := d.traces()
	if err != nil || len(paths) == 0 {
		return err
	}
	return d.session.Out.Confirm(d.o.Yes, purgeAction, fmt.Sprintf("Stop cluster %s and delete its data, logs and secret (%s)?", d.local.Name, strings.Join(paths, ", ")))
}

// nodesElsewhere fails if nodes use the cluster that are not among the processes here.
func (d *downturn) nodesElsewhere(ctx context.Context, running []launch.Running) error {
	c, err := client.Connect(ctx, d.session.Target(), d.session.Log)
	if err != nil {
		return nil //nolint:nilerr // stores that do not answer serve no node elsewhere either
	}
	defer func() { _ = c.Close() }() // nothing was written
	all, err := c.Namespaces(ctx)
	if err != nil {
		return &exit.Failure{Action: purgeAction, Err: err}
	}
	var others []string
	for _, ns := range all {
		for _, name := range ns.Nodes {
			if !slices.ContainsFunc(running, func(r launch.Running) bool { return r.Node.Name == name }) {
				others = append(others, name)
			}
		}
	}
	if len(others) > 0 {
		return &exit.Failure{
			Action: purgeAction, Err: fmt.Errorf("%s cannot be stopped from here and would be left without a cluster", human.Names(others)),
			Tries: []string{"dynctl down --purge, when dynamod has ended there"},
		}
	}
	return nil
}

// purgedText says what was deleted, behind another sentence.
func (d *downturn) purgedText() string {
	if len(d.res.Purged) == 0 {
		return ""
	}
	return "; deleted " + strings.Join(d.res.Purged, ", ")
}

// purge deletes what is left on this machine once nothing runs.
func (d *downturn) purge() error {
	deleted, err := d.local.Purge()
	if err == nil {
		var models []string
		models, err = statedir.PurgeModels(d.session.Config.StateDir, d.local.Name)
		deleted = append(deleted, models...)
	}
	d.res.Purged = append(d.res.Purged, deleted...)
	if err != nil {
		return &exit.Failure{Action: purgeAction, Err: err}
	}
	return nil
}
