package tui

import (
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"

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
		m.say(draw.Plain, "cancelled: "+string(d.action.Kind)+" "+d.action.Worker)
	case "tab", "shift+tab", "left", "right", "h", "l", "up", "down", "j", "k":
		d.yes = !d.yes
	case "enter":
		m.ask = nil
		if !d.yes {
			m.say(draw.Plain, "cancelled: "+string(d.action.Kind)+" "+d.action.Worker)
			return nil
		}
		if why := m.stillCannot(d.action); why != "" {
			m.say(draw.Warn, why)
			return nil
		}
		m.say(draw.Plain, string(d.action.Kind)+" "+d.action.Worker+" ...")
		return m.cmds.act(m.source, d.action)
	default:
		m.say(draw.Plain, "the question first: "+m.showKeys(dialogKeys))
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
func (d *dialog) facts(m *model, width int) [][]draw.Span {
	w, i := m.worker(d.action.Worker)
	if w == nil {
		return [][]draw.Span{{draw.Bad.Text(m.glyphs.Lost + " " + m.noWorker(d.action.Worker) + " any more")}}
	}
	device := cells.OrUnknown(m.known.devices[i])
	lines := [][]draw.Span{
		append([]draw.Span{roleStyle(w.Role).Text(cells.OrUnknown(string(w.Role))), draw.Plain.Text("  " + device + "  ")}, m.stateSpans(w)...),
	}
	count := func(n int) string {
		if !measured(w) {
			return cells.Unknown
		}
		return cells.Commas(n)
	}
	lines = append(lines, []draw.Span{
		draw.Dim.Text("running sequences "), draw.Strong.Text(count(w.Stats.Running)),
		draw.Dim.Text("   waiting "), draw.Strong.Text(count(w.Stats.Waiting)),
		draw.Dim.Text("   KV coming "), draw.Strong.Text(count(w.Stats.RemoteWait)),
	})
	text := "New requests go to others from now on, running sequences move to others or finish, then the lease is revoked."
	if d.action.Kind == client.ActResume {
		text = "The worker takes new requests again."
	} else if d.action.Deadline > 0 {
		text += " After " + d.action.Deadline.String() + " it stays draining and says what is open."
	}
	for _, l := range cells.Fold(text, width) {
		lines = append(lines, []draw.Span{draw.Plain.Text(l)})
	}
	if d.action.Kind == client.ActDrain {
		if note := m.lastOfRole(w); note != "" {
			lines = append(lines, []draw.Span{draw.Warn.Text(m.glyphs.Degraded + " " + note)})
		}
	}
	if m.paused {
		lines = append(lines, []draw.Span{draw.Warn.Text(m.glyphs.Degraded + " the screen is frozen: figures are " + cells.Age(m.now.Sub(m.received)) + " old")})
	} else if m.freshness().kind == stale && measured(w) {
		lines = append(lines, []draw.Span{draw.Warn.Text(m.glyphs.Degraded + " figures are " + cells.Age(m.at().Sub(w.UpdatedAt)) + " old")})
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
	return fmt.Sprintf("the last serving %s worker: requests will wait or fail", cells.OrUnknown(string(w.Role)))
}

// buttons are the two choices; brackets show the one that enter presses.
func (d *dialog) buttons() []draw.Span {
	act := d.verb() + " " + d.action.Worker
	if d.yes {
		return []draw.Span{draw.Plain.Text("  Cancel  "), draw.Plain.Text("  "), draw.Chosen.Text("[ " + act + " ]")}
	}
	return []draw.Span{draw.Chosen.Text("[ Cancel ]"), draw.Plain.Text("  "), draw.Plain.Text("  " + act + "  ")}
}

// drawDialog puts the question in the middle of the panes.
func (m *model) drawDialog(a draw.Area) {
	d := m.ask
	w := cells.Clamp(max(cells.Width(d.action.Worker)*2+24, 56), 20, a.W())
	facts := d.facts(m, w-4)
	h := min(len(facts)+5, a.H())
	box := a.Popup(w, h)
	box.Box(m.glyphs, " "+d.verb()+" "+d.action.Worker+"? ", "", draw.Focused)
	in := box.Sub(box.Inner())
	keep := max(in.H()-2, 0) // buttons and keys always stay
	for y, line := range facts[:min(len(facts), keep)] {
		in.Spans(0, y, in.W(), line)
	}
	in.Spans(0, in.H()-2, in.W(), d.buttons())
	in.Spans(0, in.H()-1, in.W(), []draw.Span{draw.KeyName.Text(m.showKeys(dialogKeys))})
}

// line is the question on screens too small for a box.
func (d *dialog) line(m *model) string {
	running := cells.Unknown
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
