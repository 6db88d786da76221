package tui

import (
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// dialog asks before a worker is changed. Cancel is the default, and nothing
// acts without it.
type dialog struct {
	action client.Action
	yes    bool // the button that enter presses is the acting one
}

func (m *model) askDrain() {
	name, _ := m.target()
	m.open(client.Action{Kind: client.ActDrain, Worker: name})
}

func (m *model) askResume() {
	name, _ := m.target()
	m.open(client.Action{Kind: client.ActResume, Worker: name})
}

func (m *model) open(a client.Action) { m.ask = &dialog{action: a} }

// pressDialog takes a key while a question stands.
func (m *model) pressDialog(key string) tea.Cmd {
	d := m.ask
	switch key {
	case "esc", "q", "n":
		m.ask = nil
		m.say(plain, "cancelled: "+string(d.action.Kind)+" "+d.action.Worker)
	case "tab", "shift+tab", "left", "right", "h", "l", "up", "down", "j", "k":
		d.yes = !d.yes
	case "enter":
		m.ask = nil
		if !d.yes {
			m.say(plain, "cancelled: "+string(d.action.Kind)+" "+d.action.Worker)
			return nil
		}
		if why := m.stillCannot(d.action); why != "" {
			m.say(warn, why)
			return nil
		}
		m.say(plain, string(d.action.Kind)+" "+d.action.Worker+" ...")
		return m.cmds.act(m.source, d.action)
	default:
		m.say(plain, "the question first: "+m.showKeys(dialogKeys))
	}
	return nil
}

const dialogKeys = "← → tab choose   enter press   esc cancel"

// stillCannot looks again: the worker may have changed while the question stood.
func (m *model) stillCannot(a client.Action) string {
	if a.Kind == client.ActResume {
		return m.cannotResumeWorker(a.Worker)
	}
	return m.cannotDrainWorker(a.Worker)
}

func (d *dialog) verb() string {
	if d.action.Kind == client.ActResume {
		return "Resume"
	}
	return "Drain"
}

// facts are the lines between title and buttons.
func (d *dialog) facts(m *model, width int) [][]span {
	w, i := m.worker(d.action.Worker)
	if w == nil {
		return [][]span{{{m.glyphs.lost + " " + m.noWorker(d.action.Worker) + " any more", bad}}}
	}
	device := orUnknown(m.known.devices[i])
	lines := [][]span{
		append([]span{{orUnknown(string(w.Role)), roleStyle(w.Role)}, {"  " + device + "  ", plain}}, m.stateSpans(w)...),
	}
	count := func(n int) string {
		if !measured(w) {
			return unknown
		}
		return commas(n)
	}
	lines = append(lines, []span{
		{"running sequences ", dim}, {count(w.Stats.Running), strong},
		{"   waiting ", dim}, {count(w.Stats.Waiting), strong},
		{"   KV coming ", dim}, {count(w.Stats.RemoteWait), strong},
	})
	text := "New requests go to others from now on, running sequences move to others or finish, then the lease is revoked."
	if d.action.Kind == client.ActResume {
		text = "The worker takes new requests again."
	} else if d.action.Deadline > 0 {
		text += " After " + d.action.Deadline.String() + " it stays draining and says what is open."
	}
	for _, l := range fold(text, width) {
		lines = append(lines, []span{{l, plain}})
	}
	if d.action.Kind == client.ActDrain {
		if note := m.lastOfRole(w); note != "" {
			lines = append(lines, []span{{m.glyphs.degraded + " " + note, warn}})
		}
	}
	if m.paused {
		lines = append(lines, []span{{m.glyphs.degraded + " the screen is frozen: figures are " + age(m.now.Sub(m.received)) + " old", warn}})
	} else if m.freshness().kind == stale && measured(w) {
		lines = append(lines, []span{{m.glyphs.degraded + " figures are " + age(m.at().Sub(w.UpdatedAt)) + " old", warn}})
	}
	return lines
}

// lastOfRole warns when nobody else could take the work.
func (m *model) lastOfRole(w *cluster.Worker) string {
	for i := range m.snap.Workers {
		o := &m.snap.Workers[i]
		if o.Name != w.Name && o.Role == w.Role && o.State.Serving() {
			return ""
		}
	}
	if w.Role == cluster.RolePrefill {
		return "the last serving prefill worker: prompts will be computed by decode workers"
	}
	return fmt.Sprintf("the last serving %s worker: requests will wait or fail", orUnknown(string(w.Role)))
}

// buttons are the two choices; brackets show the one that enter presses.
func (d *dialog) buttons() []span {
	act := d.verb() + " " + d.action.Worker
	if d.yes {
		return []span{{"  Cancel  ", plain}, {"  ", plain}, {"[ " + act + " ]", chosen}}
	}
	return []span{{"[ Cancel ]", chosen}, {"  ", plain}, {"  " + act + "  ", plain}}
}

// drawDialog puts the question in the middle of the panes.
func (m *model) drawDialog(a area) {
	d := m.ask
	w := clamp(max(textWidth(d.action.Worker)*2+24, 56), 20, a.w())
	facts := d.facts(m, w-4)
	h := min(len(facts)+5, a.h())
	box := a.popup(w, h)
	box.box(m.glyphs, " "+d.verb()+" "+d.action.Worker+"? ", "", focused)
	in := box.sub(box.inner())
	keep := max(in.h()-2, 0) // buttons and keys always stay
	for y, line := range facts[:min(len(facts), keep)] {
		in.spans(0, y, in.w(), line)
	}
	in.spans(0, in.h()-2, in.w(), d.buttons())
	in.spans(0, in.h()-1, in.w(), []span{{m.showKeys(dialogKeys), keyName}})
}

// line is the question on screens too small for a box.
func (d *dialog) line(m *model) string {
	running := unknown
	if w, _ := m.worker(d.action.Worker); w != nil {
		running = seqText(w)
	}
	cancel, act := "[Cancel]", d.verb()
	if d.yes {
		cancel, act = "Cancel", "["+d.verb()+"]"
	}
	return fmt.Sprintf("%s %s? %s running  %s %s  tab enter esc", d.verb(), d.action.Worker, running, cancel, act)
}

// parseDeadline reads the optional limit of a drain.
func parseDeadline(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("deadline %q: give a duration like 5m", s)
	}
	return d, nil
}
