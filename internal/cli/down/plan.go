package down

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// plan lists the actions of down, as -o json prints them.
type plan struct {
	Workers   []downWorker  `json:"would_remove"`
	Processes []downProcess `json:"would_stop"`
	// Unread says why workers could not be listed; they are not drained then.
	Unread string `json:"workers_unknown,omitempty"`
	// Purge lists the paths that would be deleted.
	Purge []string `json:"would_delete,omitempty"`
}

type downWorker struct {
	Name      string        `json:"name"`
	State     cluster.State `json:"state"`
	Sequences int           `json:"sequences"`

	unit string // that these are: sequences or images
}

type downProcess struct {
	Node string `json:"node"`
	PID  int    `json:"pid"`
}

// plan prints what would be done, in that order.
func (d *downturn) plan(ctx context.Context, running []launch.Running) error {
	p := plan{Workers: []downWorker{}, Processes: []downProcess{}}
	if len(running) > 0 || d.session.External() {
		if err := d.planWorkers(ctx, &p); err != nil {
			return err
		}
	}
	if d.o.Purge {
		paths, err := d.traces()
		if err != nil {
			return err
		}
		p.Purge = paths
	}
	for _, r := range slices.Backward(running) { // the one with the stores is the first, and ends last
		p.Processes = append(p.Processes, downProcess{r.Node.Name, r.PID})
	}
	a := output.Answer{Data: p}
	var b strings.Builder
	for _, w := range p.Workers {
		fmt.Fprintf(&b, "would drain and remove %s: %s, %s\n", w.Name, w.State, human.Plural(w.Sequences, w.unit))
		a.Names = append(a.Names, w.Name)
	}
	for _, r := range p.Processes {
		fmt.Fprintf(&b, "would stop %s, process %d\n", r.Node, r.PID)
		a.Names = append(a.Names, r.Node)
	}
	for _, path := range p.Purge {
		fmt.Fprintf(&b, "would delete %s\n", path)
	}
	if p.Unread != "" {
		d.session.Out.Warn("workers would not be drained: %s", p.Unread)
	}
	a.Text = b.String()
	return d.session.Out.Answer(a)
}

func (d *downturn) planWorkers(ctx context.Context, p *plan) error {
	c, err := client.Connect(ctx, d.session.Config, d.session.Log)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && d.session.External():
		return &exit.Failure{Action: downAction, Err: err}
	case err != nil:
		p.Unread = err.Error()
		return nil
	}
	defer func() { _ = c.Close() }() // nothing was written
	v, err := c.View(ctx)
	if err != nil {
		return &exit.Failure{Action: downAction, Err: err}
	}
	for _, w := range c.Workers(ctx, v) {
		p.Workers = append(p.Workers, downWorker{w.Name, w.State, fleet.OpenSequences(w), w.Role.Unit()})
	}
	return nil
}
