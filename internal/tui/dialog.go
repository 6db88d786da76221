package tui

import (
	"fmt"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// dialog asks before a worker is changed. Cancel is the default.
type dialog struct {
	action    *action
	order     client.Action
	m         *moment.Moment
	keys      string // its own, as people read them
	cancelled string // said when it is
	say       func(st draw.Style, text string)
	confirm   func() tea.Cmd
	whatIf    func() tea.Cmd // simulates it; nil where that is not offered
	yes       bool           // the button that enter presses is the acting one
}

const dialogKeys = "← → tab choose   enter press   esc cancel"

func (d *dialog) press(k tea.KeyMsg) reply {
	switch key := k.String(); {
	case key == "enter" && d.yes:
		return reply{close: true, then: d.confirm}
	case key == "enter", key == "esc", key == "q", key == "n":
		d.say(draw.Plain, d.cancelled)
		return reply{close: true}
	}
	switch k.String() {
	case "w":
		if d.whatIf != nil {
			return reply{then: d.whatIf}
		}
		d.say(draw.Plain, "the question first: "+d.keys)
	case "tab", "shift+tab", "left", "right", "h", "l", "up", "down", "j", "k":
		d.yes = !d.yes
	default:
		d.say(draw.Plain, "the question first: "+d.keys)
	}
	return reply{}
}

func (d *dialog) wheel(int) {}

func (d *dialog) size(int, int) {}

// facts are the lines between title and buttons.
func (d *dialog) facts(width int) [][]draw.Span {
	w, i := d.m.Worker(d.order.Worker)
	g := d.m.Glyphs
	if d.order.Worker == "" {
		return d.consequences(nil, nil, width)
	}
	if w == nil {
		return [][]draw.Span{{draw.Bad.Text(g.Lost + " " + d.m.NoWorker(d.order.Worker) + " any more")}}
	}
	lines := [][]draw.Span{append([]draw.Span{
		moment.RoleStyle(w.Role).Text(cells.OrUnknown(string(w.Role))), draw.Plain.Text("  " + cells.OrUnknown(d.m.Known.Devices[i]) + "  "),
	}, d.m.State(w)...)}
	work := []draw.Span{
		draw.Dim.Text("running sequences "), draw.Strong.Text(moment.Number(w, w.Stats.Running)),
		draw.Dim.Text("   waiting "), draw.Strong.Text(moment.Number(w, w.Stats.Waiting)),
		draw.Dim.Text("   KV coming "), draw.Strong.Text(moment.Number(w, w.Stats.RemoteWait)),
	}
	if !w.Role.HoldsKV() {
		work = work[:4]
		work[0].Text = "images in work "
	}
	lines = append(lines, work)
	return d.consequences(lines, w, width)
}

// consequences adds what will happen, and what speaks against it.
func (d *dialog) consequences(lines [][]draw.Span, w *cluster.Worker, width int) [][]draw.Span {
	for _, l := range cells.Fold(d.action.effect(d.m, d.order), width) {
		lines = append(lines, []draw.Span{draw.Plain.Text(l)})
	}
	for _, note := range d.warnings(w) {
		lines = append(lines, []draw.Span{draw.Warn.Text(d.m.Glyphs.Degraded + " " + note)})
	}
	return lines
}

// warnings returns the reasons against the order, and against trusting the figures.
func (d *dialog) warnings(w *cluster.Worker) []string {
	var out []string
	if d.action.warns != nil && w != nil {
		if note := d.action.warns(d.m, w); note != "" {
			out = append(out, note)
		}
	}
	switch {
	case d.m.Frozen:
		out = append(out, "the screen is frozen: figures are "+cells.Age(d.m.Kept)+" old")
	case d.m.Stale && w != nil && moment.Measured(w):
		out = append(out, "figures are "+cells.Age(d.m.At().Sub(w.UpdatedAt))+" old")
	}
	return out
}

// button is the order on its button: the action and what it is about.
func (d *dialog) button() string {
	return d.action.verb + strings.TrimPrefix(d.order.Text(), string(d.action.kind))
}

// buttons are the two choices; brackets show the one that enter presses.
func (d *dialog) buttons() []draw.Span {
	act := d.button()
	if d.yes {
		return []draw.Span{draw.Plain.Text("  Cancel  "), draw.Plain.Text("  "), draw.Chosen.Text("[ " + act + " ]")}
	}
	return []draw.Span{draw.Chosen.Text("[ Cancel ]"), draw.Plain.Text("  "), draw.Plain.Text("  " + act + "  ")}
}

// draw puts the question in the middle of the panes.
func (d *dialog) draw(a draw.Area) {
	w := cells.Clamp(max(cells.Width(d.button())*2+18, cells.Width(d.keys)+4, 56), 20, a.W())
	facts := d.facts(w - 4)
	box := a.Popup(w, min(len(facts)+5, a.H()))
	box.Box(d.m.Glyphs, " "+d.button()+"? ", "", draw.Focused)
	in := box.Sub(box.Inner())
	keep := max(in.H()-2, 0) // buttons and keys always stay
	for y, line := range facts[:min(len(facts), keep)] {
		in.Spans(0, y, in.W(), line)
	}
	in.Spans(0, in.H()-2, in.W(), d.buttons())
	in.Spans(0, in.H()-1, in.W(), []draw.Span{draw.KeyName.Text(d.keys)})
}

// line is the question on screens too small for a box.
func (d *dialog) line() (text, keys string) {
	running := cells.Unknown
	if w, _ := d.m.Worker(d.order.Worker); w != nil {
		running = moment.Sequences(w)
	}
	verb := d.action.verb
	cancel, act := "[Cancel]", verb
	if d.yes {
		cancel, act = "Cancel", "["+verb+"]"
	}
	if d.order.Worker == "" {
		return fmt.Sprintf("%s?  %s %s  tab enter esc", d.button(), cancel, act), d.keys
	}
	return fmt.Sprintf("%s? %s running  %s %s  tab enter esc", d.button(), running, cancel, act), d.keys
}
