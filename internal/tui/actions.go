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

// bigMove is further than any list is long.
const bigMove = 1 << 30

// intervals are the steps of + and -.
func intervals() []time.Duration {
	return []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
}

func (m *model) cannotMove() string {
	if m.detail.kind != detailNone {
		return ""
	}
	if _, ok := m.rowsOf(m.focus.pane); !ok {
		return m.focus.pane.info().title + " has no rows"
	}
	if len(m.lists[m.focus.pane].Rows) == 0 {
		return "no rows"
	}
	return ""
}

func (m *model) moveBy(n int) {
	if m.detail.kind != detailNone {
		m.detail.scroll = cells.Clamp(m.detail.scroll+n, 0, bigMove)
		return
	}
	if src, ok := m.rowsOf(m.focus.pane); ok {
		l := &m.lists[m.focus.pane]
		l.Move(l.Cursor+n, src)
	}
}

func (m *model) halfPage() int {
	if m.detail.kind != detailNone {
		return max(m.bodyHeight()/2, 1)
	}
	return max(m.layout().rowsIn(m.focus.pane)/2, 1)
}

func (m *model) choosePane(key string) tea.Cmd {
	if p, ok := paneNamed(key); ok {
		m.detail = detail{}
		m.setFocus(p)
	}
	return nil
}

func (m *model) stepPane(n int) {
	const panes = int(paneDecisions)
	if m.focus.pane == paneNodes {
		m.setFocus(m.before)
	}
	m.setFocus(pane((int(m.focus.pane)-1+n+panes)%panes + 1))
}

func (m *model) cannotZoom() string {
	if m.focus.pane == paneNodes {
		return "the nodes cover the screen already"
	}
	return ""
}

func (m *model) toggleZoom() { m.zoom = !m.zoom }

func (m *model) togglePause() {
	if m.play != nil {
		m.holdPlay(!m.play.held)
		return
	}
	if !m.paused {
		m.paused, m.pausedAt = true, m.now
		return
	}
	m.paused = false
	if m.pending != nil {
		msg := *m.pending
		m.pending = nil
		m.take(msg)
	}
}

func (m *model) cannotSort() string {
	src, ok := m.rowsOf(m.focus.pane)
	switch {
	case !ok:
		return m.focus.pane.info().title + " has no rows to sort"
	case src.Newest:
		return m.focus.pane.info().title + " stay newest first"
	}
	return ""
}

func (m *model) sortNext() {
	src, _ := m.rowsOf(m.focus.pane)
	l := &m.lists[m.focus.pane]
	m.sortBy((l.Sort + 1) % len(src.Keys))
}

// sortBy orders the focused pane by one of its keys, in that key's own direction.
func (m *model) sortBy(n int) {
	src, _ := m.rowsOf(m.focus.pane)
	l := &m.lists[m.focus.pane]
	l.Sort, l.Desc = n, src.Keys[n].Desc
	l.Rebuild(src)
}

func (m *model) sortReverse() {
	m.lists[m.focus.pane].Desc = !m.lists[m.focus.pane].Desc
	m.rebuild(m.focus.pane)
}

func (m *model) intervalStep(n int) (time.Duration, bool) {
	steps := intervals()
	if n > 0 {
		for _, d := range steps {
			if d > m.interval {
				return d, true
			}
		}
	} else {
		for i := len(steps) - 1; i >= 0; i-- {
			if steps[i] < m.interval {
				return steps[i], true
			}
		}
	}
	return m.interval, false
}

func (m *model) cannotFaster() string {
	if m.play != nil {
		return m.cannotSpeed(true)
	}
	if _, ok := m.intervalStep(-1); !ok {
		return "every " + cells.Interval(m.interval) + " is as often as it goes"
	}
	return ""
}

func (m *model) cannotSlower() string {
	if m.play != nil {
		return m.cannotSpeed(false)
	}
	if _, ok := m.intervalStep(1); !ok {
		return "every " + cells.Interval(m.interval) + " is as seldom as it goes"
	}
	return ""
}

// stepInterval looks more often (-1) or less often; a replay is played faster or slower.
func (m *model) stepInterval(n int) tea.Cmd {
	if m.play != nil {
		v, _ := m.nextSpeed(n < 0)
		m.setSpeed(v)
		return nil
	}
	d, _ := m.intervalStep(n)
	return m.setInterval(d)
}

func (m *model) setInterval(d time.Duration) tea.Cmd {
	m.interval = d
	return m.cmds.setInterval(m.source, d)
}

func (m *model) toggleMouse() tea.Cmd {
	m.mouse = !m.mouse
	if m.mouse {
		m.say(draw.Plain, "mouse on: M gives text selection back")
		return tea.EnableMouseCellMotion
	}
	m.say(draw.Plain, "mouse off")
	return tea.DisableMouse
}

func (m *model) cannotSave() string {
	if !m.have {
		return "nothing to save yet"
	}
	return ""
}

func (m *model) saveScreen() tea.Cmd {
	name := "dynctl-top-" + m.now.In(m.opts.Location).Format("20060102-150405") + ".txt"
	text := m.draw(m.width, m.height).Text(draw.PlainTheme()) + "\n"
	return m.cmds.save(m.opts.Save, name, []byte(text))
}

func (m *model) cannotBack() string {
	if m.detail.kind == detailNone && m.lists[m.focus.pane].Filter == "" && !m.zoom && m.focus.pane != paneNodes {
		return "nothing to go back from; q leaves"
	}
	return ""
}

// back undoes the last thing that narrowed the view.
func (m *model) back() {
	switch l := &m.lists[m.focus.pane]; {
	case m.detail.kind != detailNone:
		m.detail = detail{}
	case l.Filter != "":
		l.Filter = ""
		m.rebuild(m.focus.pane)
	case m.focus.pane == paneNodes:
		m.setFocus(m.before)
	case m.zoom:
		m.zoom = false
	}
}

// target is the worker that d and r act on: that of the detail screen, or of the
// row under the cursor. why says what to do when there is none.
func (m *model) target() (name, why string) {
	if m.detail.kind == detailWorker {
		return m.detail.worker, ""
	}
	if m.detail.kind == detailLease {
		if w, _ := m.worker(m.detail.owner); w != nil {
			return w.Name, ""
		}
	}
	if m.detail.kind != detailNone {
		return "", "this screen is not about a worker; choose one in pane 1"
	}
	row, ok := m.lists[m.focus.pane].Selected()
	switch p := m.focus.pane; {
	case p != paneWorkers && p != paneLeases:
		return "", "choose a worker in pane 1"
	case !ok:
		return "", "no worker under the cursor"
	case p == paneWorkers:
		return m.snap.Workers[row].Name, ""
	default:
		name = m.snap.Leases[row].Owner
		if w, _ := m.worker(name); w == nil {
			return "", "the lease of " + cells.OrUnknown(name) + " is not a worker's"
		}
		return name, ""
	}
}

func (m *model) cannotDrain() string {
	name, why := m.target()
	if why != "" {
		return why
	}
	return m.cannotDrainWorker(name)
}

func (m *model) cannotDrainWorker(name string) string {
	if why := m.refused(); why != "" {
		return "read-only: " + why
	}
	w, _ := m.worker(name)
	switch {
	case w == nil:
		return m.noWorker(name)
	case w.Desire == cluster.DesireRemove:
		return name + " is being removed already"
	case w.State == cluster.StateDraining || (w.Desire == cluster.DesireDrain && w.State != cluster.StateDrained):
		return name + " is draining already; r resumes it"
	case w.State == cluster.StateDrained:
		return name + " is drained already; r resumes it"
	case w.State == cluster.StateLost || w.State == cluster.StateStopped:
		return name + " is " + string(w.State) + ": nothing to drain"
	}
	return ""
}

func (m *model) cannotResume() string {
	name, why := m.target()
	if why != "" {
		return why
	}
	return m.cannotResumeWorker(name)
}

func (m *model) cannotResumeWorker(name string) string {
	if why := m.refused(); why != "" {
		return "read-only: " + why
	}
	w, _ := m.worker(name)
	switch {
	case w == nil:
		return m.noWorker(name)
	case w.Desire == cluster.DesireRemove:
		return name + " is being removed; it cannot be resumed"
	case w.Desire != cluster.DesireDrain && w.State != cluster.StateDraining && w.State != cluster.StateDrained:
		return name + " is not draining"
	}
	return ""
}

func (m *model) noWorker(name string) string {
	return fmt.Sprintf("no worker %q in cluster %s", name, cells.OrUnknown(m.snap.Cluster))
}

// acted reports how an action went.
func (m *model) acted(msg actedMsg) {
	what := string(msg.action.Kind) + " " + msg.action.Worker
	switch {
	case msg.err != nil:
		m.say(draw.Bad, what+": "+msg.err.Error())
	case msg.action.Kind == client.ActDrain:
		m.say(draw.Good, what+": accepted; the state column follows it")
	default:
		m.say(draw.Good, what+": accepted")
	}
}
