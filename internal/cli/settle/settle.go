package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Wait waits until a cluster is as declared: all wanted workers serve, and all others
// are gone.
type Wait struct {
	Out       *output.Printer
	Operation string // scale
	Doing     string // scaling
	Timeout   time.Duration
	Progress  string // how it is shown
	// Pools are the pools that are waited for; nil waits for all.
	Pools []string
	// Undo is the command that takes the change back, by default dynctl rollback, and Tries
	// are commands that show more about what is waited for.
	Undo  string
	Tries []string
}

// Run waits for a topology that was declared.
func (o Wait) Run(ctx context.Context, c *client.Cluster, w *client.Watch, topo cluster.Topology) error {
	g, led, known, before := Goal{Topo: topo, Pools: o.Pools}, NewLedger(o.Out.Now()), map[string]cluster.Worker{}, Restarts(w.View())
	var s Standing
	undo := cmp.Or(o.Undo, "dynctl rollback")
	var unplaced Patience
	watching := Watching{
		Out: o.Out, Progress: o.Progress, Timeout: o.Timeout,
		Stopped: exit.Stopped{Text: "stopped watching: " + c.Name + " goes on " + o.Doing},
		Late: func() *exit.Failure {
			return &exit.Failure{
				Action: fmt.Sprintf("%s is not as declared after %s", c.Name, human.Duration(o.Timeout)), Err: errors.New(s.WaitsFor()),
				Facts: append(s.Reasons(), "the work goes on"), Tries: append([]string{"dynctl ps"}, o.Tries...),
			}
		},
	}
	return watching.Until(ctx, w, func(v client.View) (screen progress.Screen, done bool, err error) {
		if t := v.Topology; t != nil && t.Generation > topo.Generation {
			return screen, false, &exit.Failure{Action: "cannot go on " + o.Doing, Err: fmt.Errorf("%s declared another topology", human.OrDash(t.UpdatedBy)), Tries: []string{"dynctl ps"}}
		}
		s = g.Judge(v)
		// The topology must have been seen: before that the old one may be settled.
		done = v.Topology != nil && v.Topology.Generation >= topo.Generation && s.Settled()
		screen = progress.Screen{
			Operation: o.Operation, Subject: c.Name, Title: fmt.Sprintf("%s  %s  %d of %d ready", c.Name, o.Doing, s.Ready, s.Want),
			Rows: s.Rows(led, v.Nodes, known, o.Out.Now()), Footer: Footer,
		}
		if done {
			return screen, true, nil
		}
		if _, f := s.Impossible(before); f != nil {
			f.Tries = slices.Concat([]string{undo}, f.Tries, o.Tries)
			return screen, false, f
		}
		if who, why := s.Homeless(); unplaced.Over(who != "" && len(s.Leaving) == 0) {
			err = &exit.Failure{Action: "cannot place " + who, Err: errors.New(why), Facts: append(s.GoOn(), "it starts when a device has room"), Tries: []string{undo, "dynctl ps --nodes -o wide"}}
		}
		return screen, false, err
	})
}
