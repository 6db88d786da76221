package tui

import (
	"errors"
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// action is something a worker can be told, by key and by command. All of them are asked
// for, carried out and reported in the same way.
type action struct {
	kind     client.ActionKind // also the word of the command line
	verb     string            // on the button
	args     string            // of the command, as help shows them
	about    string            // for the help
	deadline bool              // the command takes one
	// parse reads the arguments of the command; nil: a worker, and a deadline if it takes one.
	parse    func(m *moment.Moment, args []string) (client.Action, error)
	complete func(m *model) []string // the first argument; nil: workers
	// cannot says why it makes no sense for a worker; empty if it does. Actions on the
	// cluster have none.
	cannot func(w *cluster.Worker) string
	// effect says what will happen.
	effect func(m *moment.Moment, order client.Action) string
	// warns of what the cluster loses; nil: nothing.
	warns func(m *moment.Moment, w *cluster.Worker) string
}

// actions are all there are, in the order of the help.
func actions() []*action { return []*action{drain(), resume(), restart(), scale(), set()} }

func drain() *action {
	return &action{
		kind: client.ActDrain, verb: "Drain", args: "<worker> [deadline]", about: "drain a worker, after a question",
		deadline: true, warns: lastOfRole,
		cannot: func(w *cluster.Worker) string {
			switch {
			case w.Desire == cluster.DesireRemove:
				return w.Name + " is being removed already"
			case w.State == cluster.StateSleeping:
				return w.Name + " sleeps; r wakes it"
			case w.State == cluster.StateDraining || (w.Desire == cluster.DesireDrain && w.State != cluster.StateDrained):
				return w.Name + " is draining already; r resumes it"
			case w.State == cluster.StateDrained:
				return w.Name + " is drained already; r resumes it"
			case w.State == cluster.StateLost || w.State == cluster.StateStopped:
				return w.Name + " is " + string(w.State) + ": nothing to drain"
			}
			return ""
		},
		effect: func(m *moment.Moment, order client.Action) string {
			text := "New requests go to others from now on, running sequences move to others or finish, then the lease is revoked."
			if w, _ := m.Worker(order.Worker); w != nil && !w.Role.HoldsKV() {
				text = "New images go to others from now on, those in work finish, then the lease is revoked."
			}
			if order.Deadline > 0 {
				text += " After " + order.Deadline.String() + " it stays draining and says what is open."
			}
			return text
		},
	}
}

func resume() *action {
	return &action{
		kind: client.ActResume, verb: "Resume", args: "<worker>", about: "resume a worker, after a question",
		cannot: func(w *cluster.Worker) string {
			switch {
			case w.Desire == cluster.DesireRemove:
				return w.Name + " is being removed; it cannot be resumed"
			case w.State == cluster.StateSleeping && w.Desire != cluster.DesireDrain:
				return "somebody else has put the server of " + w.Name + " to sleep; dynctl wake wakes it"
			case w.Desire != cluster.DesireDrain && w.State != cluster.StateDraining && w.State != cluster.StateDrained && w.State != cluster.StateSleeping:
				return w.Name + " is not draining"
			}
			return ""
		},
		effect: func(*moment.Moment, client.Action) string { return "The worker takes new requests again." },
	}
}

// lastOfRole warns when nobody else could take the work.
func lastOfRole(m *moment.Moment, w *cluster.Worker) string {
	for i := range m.Snap.Workers {
		o := &m.Snap.Workers[i]
		if o.Name != w.Name && o.Role == w.Role && o.State.Serving() {
			return ""
		}
	}
	switch w.Role {
	case cluster.RolePrefill:
		return "the last serving prefill worker: prompts will be computed by decode workers"
	case cluster.RoleEncode:
		return "the last serving encode worker: workers that compute prompts encode images themselves"
	}
	return fmt.Sprintf("the last serving %s worker: requests will wait or fail", cells.OrUnknown(string(w.Role)))
}

// cannot says why an order cannot be carried out now; empty if it can.
func (m *model) cannot(a *action, order client.Action) string {
	switch {
	case m.opts.ReadOnly:
		return "read-only: started with --read-only"
	case m.source != nil && m.source.ReadOnly() != "":
		return "read-only: " + m.source.ReadOnly()
	}
	if order.Worker == "" {
		return ""
	}
	w, _ := m.shown.Worker(order.Worker)
	if w == nil {
		return m.shown.NoWorker(order.Worker)
	}
	return a.cannot(w)
}

// key is an action as a key: on the worker that keys act on.
func (a *action) key() (can func(*model) string, run func(*model, string) tea.Cmd) {
	can = func(m *model) string {
		s := m.subject()
		if s.NoWorker != "" {
			return s.NoWorker
		}
		return m.cannot(a, client.Action{Kind: a.kind, Worker: s.Worker})
	}
	run = func(m *model, _ string) tea.Cmd {
		m.ask(a, client.Action{Kind: a.kind, Worker: m.subject().Worker})
		return nil
	}
	return can, run
}

// command is an action as a word of the command line.
func (a *action) command() command {
	complete := a.complete
	if complete == nil {
		complete = workerNames
	}
	return command{name: string(a.kind), args: a.args, help: a.about, complete: complete, run: func(m *model, args []string) (tea.Cmd, error) {
		parse := a.parse
		if parse == nil {
			parse = a.parseWorker
		}
		order, err := parse(m.shown, args)
		if err != nil {
			return nil, err
		}
		if why := m.cannot(a, order); why != "" {
			return nil, errors.New(why)
		}
		m.ask(a, order)
		return nil, nil
	}}
}

// parseWorker reads a worker, and a deadline if the action takes one.
func (a *action) parseWorker(_ *moment.Moment, args []string) (client.Action, error) {
	if len(args) != 1 && (!a.deadline || len(args) != 2) {
		return client.Action{}, errUsage
	}
	order := client.Action{Kind: a.kind, Worker: args[0]}
	if len(args) == 2 {
		d, err := time.ParseDuration(args[1])
		if err != nil || d <= 0 {
			return client.Action{}, fmt.Errorf("deadline %q: give a duration like 5m", args[1])
		}
		order.Deadline = d
	}
	return order, nil
}

// ask lays the question over the screen: nothing acts without it.
func (m *model) ask(a *action, order client.Action) {
	what := order.Text()
	keys, whatIf := dialogKeys, (func() tea.Cmd)(nil)
	if m.asks(order) {
		keys, whatIf = keys+whatIfKeys, func() tea.Cmd { return m.simulate(order) }
	}
	m.over.push(&dialog{
		action: a, order: order, m: m.shown, keys: keyNames(keys, m.shown.ASCII), whatIf: whatIf,
		say: m.say, cancelled: "cancelled: " + what,
		confirm: func() tea.Cmd {
			// The worker may have changed while the question stood.
			if why := m.cannot(a, order); why != "" {
				m.say(draw.Warn, why)
				return nil
			}
			m.say(draw.Plain, what+" ...")
			return m.cmds.act(m.source, order)
		},
	})
}

// acted reports how an action went.
func (m *model) acted(msg actedMsg) {
	what := msg.action.Text()
	if msg.err != nil {
		m.say(draw.Bad, what+": "+msg.err.Error())
		return
	}
	m.say(draw.Good, what+": accepted")
	if msg.action.Kind != client.ActSet { // it is carried out already
		m.outcomes.begin(msg.action, m.shown)
	}
}
