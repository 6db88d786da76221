package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// settling waits until a cluster is as declared: all wanted workers serve, and all others
// are gone.
type settling struct {
	operation string // scale
	doing     string // scaling
	timeout   time.Duration
	mode      string // of progress
}

func (o settling) run(ctx context.Context, inv *invocation, c *client.Cluster, w *client.Watch, topo cluster.Topology) error {
	show := inv.progress(o.mode)
	defer show.Close()
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	begin := inv.env.Now()
	g, led, known, before := goal{topo: topo}, newLedger(begin), map[string]cluster.Worker{}, restarts(w.View())
	var s standing
	var unplaced time.Time
	err := w.Until(waiting, lookEvery, func(v client.View) (bool, error) {
		if t := v.Topology; t != nil && t.Generation > topo.Generation {
			return false, &failure{action: "cannot go on " + o.doing, err: fmt.Errorf("%s declared another topology", orDash(t.UpdatedBy)), tries: []string{"dynctl ps"}}
		}
		s = g.judge(v)
		// The topology must have been seen: before that the old one may be settled.
		done := v.Topology != nil && v.Topology.Generation >= topo.Generation && s.settled()
		screen := progress.Screen{
			Operation: o.operation, Subject: c.Name, Title: fmt.Sprintf("%s  %s  %d of %d ready", c.Name, o.doing, s.ready, s.want),
			Rows: s.rows(led, v.Nodes, known, inv.env.Now()), Footer: "ctrl-c stops watching only.",
		}
		if done {
			screen.Footer = ""
		}
		show.Show(screen)
		if done {
			return true, nil
		}
		if _, f := s.impossible(before); f != nil {
			f.tries = append([]string{"dynctl rollback"}, f.tries...)
			return false, f
		}
		if who, why := s.homeless(); who == "" || len(s.leaving) > 0 {
			unplaced = time.Time{}
		} else if unplaced.IsZero() {
			unplaced = time.Now()
		} else if time.Since(unplaced) > patience {
			return false, &failure{action: "cannot place " + who, err: errors.New(why), facts: append(s.goOn(), "it starts when there is a place"), tries: []string{"dynctl rollback", "dynctl ps --nodes -o wide"}}
		}
		return false, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &interrupted{text: "stopped watching: " + c.Name + " goes on " + o.doing, err: err}
	case waiting.Err() != nil:
		missing := s.missing()
		for _, w := range s.leaving {
			missing = append(missing, w.Name+" to leave")
		}
		return &failure{
			action: fmt.Sprintf("%s is not as declared after %s", c.Name, duration(o.timeout)), err: errors.New("it waits for " + strings.Join(missing, ", ")),
			code: exitDeadline, facts: []string{"the work goes on"}, tries: []string{"dynctl ps"},
		}
	}
	return err
}
