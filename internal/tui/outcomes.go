package tui

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// pursuit is an order that was accepted and whose outcome is not known yet.
type pursuit struct {
	order  client.Action
	at     time.Time // when it was given, by the clock of the snapshots
	before []served  // the workers when it was given
	obeyed bool      // a snapshot has shown the order
	warned bool      // what keeps it was said
}

// served is the generation of its assignment that a worker served.
type served struct {
	worker     string
	generation int64
}

// verdict is what a snapshot says of an order; the zero value: nothing yet.
type verdict struct {
	text string
	st   draw.Style
	over bool // nothing more is to come
}

const (
	// obeyWithin is the time after which an order that no snapshot shows is given up.
	obeyWithin = 15 * time.Second
	// maxPursued bounds the orders that are followed; the oldest is forgotten first.
	maxPursued = 64
)

// outcomes follows orders by the snapshots until it is known what came of them, and holds
// what is to be said of that until there is room on the message line.
type outcomes struct {
	open []pursuit
	news []flash
}

// begin follows an order from a moment on. A newer order to the same worker takes the place
// of an older one, as does one of the same kind to the cluster.
func (o *outcomes) begin(order client.Action, m *moment.Moment) {
	o.open = slices.DeleteFunc(o.open, func(p pursuit) bool {
		return p.order.Worker == order.Worker && (order.Worker != "" || p.order.Kind == order.Kind)
	})
	if len(o.open) == maxPursued {
		o.open = o.open[1:]
	}
	p := pursuit{order: order, at: m.Snap.Time}
	for i := range m.Snap.Workers {
		w := &m.Snap.Workers[i]
		if order.Worker == w.Name || order.Kind == client.ActRestartAll && w.Desire == cluster.DesireRun {
			p.before = append(p.before, served{w.Name, w.Generation})
		}
	}
	o.open = append(o.open, p)
}

// look judges every order by a snapshot.
func (o *outcomes) look(m *moment.Moment) {
	kept := o.open[:0]
	for _, p := range o.open {
		v := p.judge(m)
		if v.text != "" {
			if len(o.news) == maxPursued {
				o.news = o.news[1:]
			}
			o.news = append(o.news, flash{text: v.text, st: v.st})
		}
		if !v.over {
			kept = append(kept, p)
		}
	}
	o.open = kept
}

// tell shows the next outcome, once the one before has been shown for its time; it reports
// whether it did.
func (m *model) tell() bool {
	if len(m.outcomes.news) == 0 || m.flash.lasting && m.feed.now.Before(m.flash.until) {
		return false
	}
	next := m.outcomes.news[0]
	m.outcomes.news = m.outcomes.news[1:]
	m.say(next.st, next.text)
	m.flash.lasting = true
	return true
}

// judge says what a snapshot tells of the order.
func (p *pursuit) judge(m *moment.Moment) verdict {
	switch p.order.Kind {
	case client.ActScale:
		return p.scaled(m)
	case client.ActRestartAll:
		return p.restartedAll(m)
	}
	w, _ := m.Worker(p.order.Worker)
	what := p.order.Text()
	wanted := cluster.DesireRun
	if p.order.Kind == client.ActDrain {
		wanted = cluster.DesireDrain
	}
	switch {
	case w == nil:
		return verdict{what + ": it was removed", draw.Bad, true}
	case w.Desire == wanted:
		p.obeyed = true
	case p.obeyed && w.Desire == cluster.DesireRun:
		return verdict{what + ": it was resumed meanwhile", draw.Warn, true}
	case p.obeyed && w.Desire == cluster.DesireDrain:
		return verdict{what + ": it was drained meanwhile", draw.Warn, true}
	case p.obeyed:
		return verdict{what + ": it is being removed", draw.Warn, true}
	case m.Snap.Time.Sub(p.at) > obeyWithin:
		return verdict{what + ": the cluster does not show the order", draw.Bad, true}
	}
	if !p.obeyed {
		return verdict{}
	}
	if w.State == cluster.StateLost {
		return verdict{what + ": it is lost" + because(w), draw.Bad, true}
	}
	if p.order.Kind == client.ActDrain {
		return p.drained(w)
	}
	if p.order.Kind == client.ActRestart {
		return p.restarted(w)
	}
	return p.serves(w, "serves again")
}

// drained judges a drain: only the worker itself says that it is safe to stop.
func (p *pursuit) drained(w *cluster.Worker) verdict {
	d := w.Drain
	switch {
	case (w.State == cluster.StateDrained || w.State == cluster.StateStopped) && d != nil && d.Safe:
		took := ""
		if d.EndedAt.After(d.StartedAt) {
			took = " in " + cells.Seconds(d.EndedAt.Sub(d.StartedAt))
		}
		return verdict{w.Name + " drained" + took + ": " + d.Ends() + ". safe to stop", draw.Good, true}
	case w.State == cluster.StateDraining && d != nil && d.Overdue && !p.warned:
		p.warned = true
		return verdict{fmt.Sprintf("%s did not drain by its deadline: %d of %d %ss left. it stays draining; r resumes it", w.Name, d.Left, max(d.Sequences, d.Left), w.Role.Unit()), draw.Bad, false}
	}
	return verdict{}
}

// serves judges an order after which the worker is to serve.
func (p *pursuit) serves(w *cluster.Worker, text string) verdict {
	switch {
	case w.State.Serving():
		return verdict{w.Name + " " + text, draw.Good, true}
	case w.State == cluster.StateFailed && !p.warned:
		p.warned = true
		return verdict{w.Name + " does not start" + because(w) + ". its agent goes on trying", draw.Bad, false}
	}
	return verdict{}
}

// because is the reason that a worker gives.
func because(w *cluster.Worker) string {
	if w.Reason == "" {
		return ""
	}
	return ": " + w.Reason
}
