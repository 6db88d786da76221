package tui

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// model is everything the screen knows. Only the program's loop touches it.
type model struct {
	opts   Options
	glyphs *draw.Glyphs
	theme  *draw.Theme
	ascii  bool
	keys   []binding
	words  []command // of the command line
	source client.Source
	cmds   *commander
	stop   context.Context // of Run: its end leaves the program

	width, height int
	now           time.Time // by ticks; never read from a clock here
	interval      time.Duration

	have     bool
	snap     cluster.Snapshot
	received time.Time // when snap came
	known    facts     // worked out of snap once
	ended    bool      // the source closed

	play *playback // nil while live

	paused   bool
	pausedAt time.Time
	pending  *snapshotMsg // the newest while paused

	focus  focus
	before pane // where esc goes back to from the nodes
	zoom   bool
	lists  [paneEnd]table.List
	mouse  bool
	detail detail // what covers the panes, if anything
	pop    overlay
	ask    *dialog
	typing *prompt
	looked string // worker whose activity the source was asked for
	flash  flash

	dirty bool   // something visible changed since frame was drawn
	frame string // the last drawn screen
}

// flash is a short message in the notice line.
type flash struct {
	text  string
	st    draw.Style
	until time.Time
}

// flashFor is how long a message stays.
const flashFor = 6 * time.Second

// newModel wires a model; source and cmds may be nil where nothing runs.
func newModel(source client.Source, cmds *commander, t *draw.Theme, opts Options) *model {
	opts = opts.withDefaults()
	m := &model{
		opts: opts, source: source, cmds: cmds, theme: t, play: newPlayback(opts.Replay, source),
		ascii: opts.ASCII, glyphs: draw.UnicodeGlyphs(),
		keys: keyMap(), words: commands(),
		interval: opts.Interval, now: opts.Now(), zoom: opts.Zoom,
		focus: focus{paneWorkers, paneLeases}, before: paneWorkers, dirty: true,
	}
	// Terminals set to wide East Asian glyphs would draw boxes of double width.
	if m.ascii || cells.Width(m.glyphs.Full+m.glyphs.Ready+m.glyphs.Horizontal) != 3 {
		m.ascii, m.glyphs = true, draw.ASCIIGlyphs()
	}
	m.lists[paneLeases].Sort = 1 // soonest first
	if p, ok := paneNamed(opts.View); ok {
		m.setFocus(p)
	}
	if opts.Worker != "" {
		m.detail = detail{kind: detailWorker, worker: opts.Worker}
	}
	return m
}

// Init starts waiting for snapshots, for the clock and for the end of Run's context.
func (m *model) Init() tea.Cmd {
	start := []tea.Cmd{m.cmds.next(m.source.Snapshots()), m.cmds.tick(m.tickEvery()), m.cmds.leave(m.stop)}
	m.follow()
	if m.play == nil { // a recording has its own pace
		start = append(start, m.cmds.setInterval(m.source, m.interval))
	}
	return tea.Batch(start...)
}

// Update takes one message. It is the only place that changes the model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	was := m.now
	switch msg := msg.(type) {
	case tickMsg:
		m.now = msg.at
		if m.tickShows(was, msg.at) {
			m.dirty = true
		}
		return m, m.cmds.tick(m.tickEvery())
	case nil:
		return m, nil
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case snapshotMsg:
		m.take(msg)
		cmd = m.cmds.next(m.source.Snapshots())
	case endedMsg:
		m.ended = true
	case tea.KeyMsg:
		cmd = m.press(msg)
	case tea.MouseMsg:
		m.pointer(tea.MouseEvent(msg))
	case actedMsg:
		m.acted(msg)
	case savedMsg:
		if msg.err != nil {
			m.say(draw.Bad, "save "+msg.name+": "+msg.err.Error())
		} else {
			m.say(draw.Good, "screen saved to "+msg.name)
		}
	}
	m.settle()
	m.follow()
	m.dirty = true
	return m, cmd
}

// follow has the source ask the worker on the screen for what it has in hand, and
// nobody once another screen is open.
func (m *model) follow() {
	worker := ""
	if m.detail.kind == detailWorker {
		worker = m.detail.worker
	}
	if worker != m.looked && m.source != nil {
		m.looked = worker
		m.source.Inspect(worker)
	}
}

// take stores a snapshot, or holds it while the screen is frozen.
func (m *model) take(msg snapshotMsg) {
	if msg.at.After(m.now) {
		m.now = msg.at
	}
	if m.paused {
		m.pending = &msg
		return
	}
	m.snap, m.received, m.have = msg.snap, msg.at, true
	m.known = factsOf(&m.snap)
	for p := range paneEnd {
		m.rebuild(p)
	}
}

// rebuild works out the rows of a pane again.
func (m *model) rebuild(p pane) {
	if src, ok := m.rowsOf(p); ok {
		m.lists[p].Rebuild(src)
	}
}

// rowsOf describes the rows of a pane; ok is false for panes without any.
func (m *model) rowsOf(p pane) (table.Source, bool) {
	switch p {
	case paneWorkers:
		return m.workerRows(), true
	case paneLeases:
		return m.leaseRows(), true
	case paneEvents:
		return m.eventRows(), true
	case paneDecisions:
		return m.decisionRows(), true
	case paneNodes:
		return m.nodeRows(), true
	}
	return table.Source{}, false
}

// settle keeps every cursor on the screen after a change.
func (m *model) settle() {
	l := m.layout()
	for p := range paneEnd {
		if l.shown(p) {
			m.lists[p].Scroll(l.rowsIn(p))
		}
	}
	m.detail.scroll = cells.Clamp(m.detail.scroll, 0, max(m.detail.height(m)-m.bodyHeight(), 0))
	m.pop.scroll = cells.Clamp(m.pop.scroll, 0, max(len(m.pop.lines(m))-m.popRows(), 0))
}

func (m *model) layout() layout { return arrange(m.width, m.height, m.zoom, m.focus) }

func (m *model) bodyHeight() int { return max(m.height-3, 0) }

func (m *model) setFocus(p pane) {
	switch {
	case p == paneNodes:
		if m.focus.pane != paneNodes {
			m.before = m.focus.pane
		}
	case p != paneWorkers:
		m.focus.lower = p
	}
	m.focus.pane = p
}

// say shows a message for a while.
func (m *model) say(st draw.Style, text string) {
	m.flash = flash{text: text, st: st, until: m.now.Add(flashFor)}
}

// held is the moment the screen shows, by its own clock.
func (m *model) held() time.Time {
	if m.paused {
		return m.pausedAt
	}
	return m.now
}

// since is how old the snapshot on the screen is.
func (m *model) since() time.Duration {
	if !m.have {
		return 0
	}
	age := max(m.held().Sub(m.received), 0)
	switch {
	case m.play == nil:
		return age
	case m.still():
		return 0
	}
	return time.Duration(float64(age) * m.play.Speed)
}

// at is the moment the screen shows, by the clock of the snapshot: recordings
// keep their own time.
func (m *model) at() time.Time { return m.snap.Time.Add(m.since()) }

// countdown is what leases lost since the snapshot. Nobody knows how they fare
// while the data is stale, so they stand still from then on.
func (m *model) countdown() time.Duration {
	if !m.snap.Fresh.Live() {
		return 0
	}
	return min(m.since(), m.silence())
}

// silence is how long no snapshot may come before the screen calls itself stale.
func (m *model) silence() time.Duration { return max(silentAfter*m.interval, 3*time.Second) }

// counting reports whether tenths of seconds are on the screen.
func (m *model) counting() bool {
	kind := m.freshness().kind
	return m.have && (kind == fresh || kind == replay && !m.still()) &&
		m.height >= minHeight && m.width >= minWidth && m.pop.kind == popNone &&
		(len(m.snap.Leases) > 0 || m.known.leases)
}

// tickEvery is how soon something on the screen changes by time alone.
func (m *model) tickEvery() time.Duration {
	if m.counting() {
		return 100 * time.Millisecond
	}
	return time.Second
}

// tickShows reports whether the screen differs between two moments.
func (m *model) tickShows(a, b time.Time) bool {
	unit := time.Second
	if m.counting() {
		unit = 100 * time.Millisecond
	}
	return !a.Truncate(unit).Equal(b.Truncate(unit))
}

// refused says why workers cannot be changed; empty when they can.
func (m *model) refused() string {
	switch {
	case m.opts.ReadOnly:
		return "started with --read-only"
	case m.source == nil:
		return ""
	}
	return m.source.ReadOnly()
}
