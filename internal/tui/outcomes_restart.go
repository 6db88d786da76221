package tui

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// restarted judges the restart of one worker: it serves a later generation, or says why not.
func (p *pursuit) restarted(w *cluster.Worker) verdict {
	switch before := p.before; {
	case len(before) == 0: // it was not shown when the order was given
		return verdict{st: draw.Plain, over: true}
	case w.Declined.Generation > before[0].generation:
		return verdict{w.Name + " did not restart: " + w.Declined.Why + ". it still serves, unchanged", draw.Bad, true}
	case w.Generation > before[0].generation || w.State == cluster.StateFailed:
		return p.serves(w, "restarted")
	}
	return verdict{}
}

// restartedAll judges the restart of all workers that there were.
func (p *pursuit) restartedAll(m *moment.Moment) verdict {
	left := 0
	for _, b := range p.before {
		w, _ := m.Worker(b.worker)
		if w == nil || w.Desire != cluster.DesireRun { // others take its place, or it was drained
			continue
		}
		if w.State == cluster.StateFailed && !p.warned {
			p.warned = true
			return verdict{"restart --rolling: " + w.Name + " does not start" + because(w), draw.Bad, false}
		}
		if w.Generation <= b.generation || !w.State.Serving() {
			left++
		}
	}
	if left > 0 || len(p.before) == 0 {
		return verdict{over: left == 0} // without workers there is nothing to say
	}
	return verdict{fmt.Sprintf("all workers restarted (%d)", len(p.before)), draw.Good, true}
}

// scaled judges other numbers of workers: all that are wanted serve, and no others are left.
func (p *pursuit) scaled(m *moment.Moment) verdict {
	if m.Snap.Topology == nil {
		return verdict{}
	}
	t := m.Snap.Topology.In(p.order.Pool)
	switch {
	case t.Asks(p.order.Workers):
		p.obeyed = true
	case p.obeyed:
		return verdict{p.order.Text() + ": other numbers were declared meanwhile: " + shape(t), draw.Warn, true}
	case m.Snap.Time.Sub(p.at) > obeyWithin:
		return verdict{p.order.Text() + ": the cluster does not show the order", draw.Bad, true}
	default:
		return verdict{}
	}
	have, settled := cluster.Counts{}, true
	for _, r := range cluster.Roles {
		have[r] = 0
	}
	for i := range m.Snap.Workers {
		w := &m.Snap.Workers[i]
		if w.Pool != p.order.Pool {
			continue
		}
		have[w.Role]++
		settled = settled && (w.State.Serving() || w.Desire == cluster.DesireDrain)
		if w.State == cluster.StateFailed && !p.warned {
			p.warned = true
			return verdict{p.order.Text() + ": " + w.Name + " does not start" + because(w), draw.Bad, false}
		}
	}
	if settled && t.Asks(have) {
		where := "the cluster"
		if p.order.Pool != "" {
			where = cluster.PoolWords(p.order.Pool)
		}
		return verdict{where + " has " + shape(t) + " workers", draw.Good, true}
	}
	return verdict{}
}
