package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// downPlan is what down would do, as -o json prints it.
type downPlan struct {
	Workers   []downWorker  `json:"would_remove"`
	Processes []downProcess `json:"would_stop"`
	// Unread says why nobody knows of workers; they are not drained then.
	Unread string `json:"workers_unknown,omitempty"`
}

type downWorker struct {
	Name      string        `json:"name"`
	State     cluster.State `json:"state"`
	Sequences int           `json:"sequences"`
}

type downProcess struct {
	Node string `json:"node"`
	PID  int    `json:"pid"`
}

// plan prints what would be done, in that order.
func (d *downturn) plan(ctx context.Context, running []launch.Running) error {
	p := downPlan{Workers: []downWorker{}, Processes: []downProcess{}}
	if err := d.planWorkers(ctx, &p); err != nil {
		return err
	}
	for _, r := range slices.Backward(running) { // the one with the stores is the first, and ends last
		p.Processes = append(p.Processes, downProcess{r.Node.Name, r.PID})
	}
	a := answer{data: p}
	var b strings.Builder
	for _, w := range p.Workers {
		fmt.Fprintf(&b, "would drain and remove %s: %s, %s\n", w.Name, w.State, plural(w.Sequences, "sequence"))
		a.names = append(a.names, w.Name)
	}
	for _, r := range p.Processes {
		fmt.Fprintf(&b, "would stop %s, process %d\n", r.Node, r.PID)
		a.names = append(a.names, r.Node)
	}
	if p.Unread != "" {
		d.inv.warn("workers would not be drained: %s", p.Unread)
	}
	a.text = b.String()
	return d.inv.answer(a)
}

func (d *downturn) planWorkers(ctx context.Context, p *downPlan) error {
	c, err := client.Connect(ctx, d.inv.cfg, d.inv.log)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && d.inv.external():
		return &failure{action: downAction, err: err}
	case err != nil:
		p.Unread = err.Error()
		return nil
	}
	defer func() { _ = c.Close() }() // nothing was written
	v, err := c.View(ctx)
	if err != nil {
		return &failure{action: downAction, err: err}
	}
	for _, w := range c.Workers(ctx, v) {
		p.Workers = append(p.Workers, downWorker{w.Name, w.State, w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait})
	}
	return nil
}
