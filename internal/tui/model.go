package tui

import (
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// model is the frame: it gives panes their size, the newest snapshot and the keys that they
// are to act on, and puts one thing over the other. Only the program's loop touches it.
type model struct {
	opts   Options
	theme  *draw.Theme
	source client.Source
	cmds   *commander

	shown    *moment.Moment // what everything is drawn from
	feed     feed
	panes    panes
	page     *detail.Page // the screen that covers the panes; nil: none
	over     stack        // what lies over both
	flash    flash
	outcomes outcomes // of orders that were given

	keys   []binding
	words  commandLine
	looked string // worker whose activity the source was asked for
	mouse  bool

	dirty bool   // something visible changed since frame was drawn
	frame string // the last drawn screen
}

// flash is a short message in the notice line.
type flash struct {
	text    string
	st      draw.Style
	until   time.Time
	lasting bool // a key does not end it
}

// flashFor is the time that a message stays.
const flashFor = 6 * time.Second

// newModel wires a model with the panes of a table; source and cmds may be nil where nothing
// runs.
func newModel(source client.Source, cmds *commander, t *draw.Theme, opts Options, table []paneSpec) *model {
	opts = opts.withDefaults()
	shown := moment.New(opts.ASCII, opts.Location)
	m := &model{
		opts: opts, source: source, cmds: cmds, theme: t, shown: shown,
		feed:  feed{shown: shown, now: opts.Now(), interval: opts.Interval, play: newPlayback(opts.Replay, source)},
		panes: newPanes(shown, table),
		keys:  keyMap(table), words: commands(table), dirty: true,
	}
	m.panes.zoom = opts.Zoom
	if i, ok := m.panes.named(opts.View); ok {
		m.panes.choose(i)
	}
	if opts.Worker != "" {
		m.page = detail.NewPage(shown, detail.Worker(shown, opts.Worker))
	}
	m.feed.sync()
	return m
}

// Init starts waiting for snapshots, for the clock and for the end of Run's context.
func (m *model) Init() tea.Cmd {
	start := []tea.Cmd{m.cmds.next(m.source.Snapshots()), m.cmds.tick(m.tickEvery()), m.cmds.leave()}
	m.follow()
	if m.feed.play == nil { // a recording has its own pace
		start = append(start, m.cmds.setInterval(m.source, m.feed.interval))
	}
	return tea.Batch(start...)
}

// Update takes one message. It is the only place that changes the model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tickMsg:
		was := m.feed.now
		m.feed.now = msg.at
		m.feed.sync()
		if m.tell() {
			m.dirty = true
		}
		if unit := m.tickEvery(); !was.Truncate(unit).Equal(msg.at.Truncate(unit)) {
			m.dirty = true
		}
		return m, m.cmds.tick(m.tickEvery())
	case nil:
		return m, nil
	case tea.WindowSizeMsg:
		m.shown.Width, m.shown.Height = msg.Width, msg.Height
	case snapshotMsg:
		m.take(msg)
		cmd = m.cmds.next(m.source.Snapshots())
	case endedMsg:
		m.feed.ended = true
	case tea.KeyMsg:
		cmd = m.press(msg)
	case tea.MouseMsg:
		m.pointer(tea.MouseEvent(msg))
	case simulatedMsg:
		m.simulated(msg)
	case actedMsg:
		m.acted(msg)
	case logMsg:
		cmd = m.cmds.awaitLog(msg.log)
	case savedMsg:
		if msg.err != nil {
			m.say(draw.Bad, "save "+msg.name+": "+msg.err.Error())
		} else {
			m.say(draw.Good, "screen saved to "+msg.name)
		}
	}
	m.settle()
	m.follow()
	m.tell()
	m.dirty = true
	return m, cmd
}

// take shows a snapshot, unless the screen is frozen.
func (m *model) take(msg snapshotMsg) {
	if m.feed.take(msg) {
		m.refresh()
	}
}

// refresh tells the panes that another snapshot is shown.
func (m *model) refresh() {
	for i := range m.panes.all {
		m.panes.all[i].Update()
	}
	m.outcomes.look(m.shown)
}

// settle brings everything up to the time and gives everything its size.
func (m *model) settle() {
	m.feed.sync()
	l := m.layout()
	m.panes.shown(l, func(_ int, o *placed) {
		r := l.Slots[o.slot].Inner()
		o.Size(r.W, r.H)
	})
	if m.page != nil {
		m.page.Size(m.shown.Width, m.bodyHeight())
	}
	if o := m.over.top(); o != nil {
		o.size(m.shown.Width, m.bodyHeight())
	}
}

// follow has the source ask the worker on the screen for what it has in hand, and
// nobody once another screen is open.
func (m *model) follow() {
	worker := ""
	if m.page != nil {
		worker = m.page.Asks()
	}
	if worker != m.looked && m.source != nil {
		m.looked = worker
		m.source.Inspect(worker)
	}
}

func (m *model) layout() layout.Layout { return m.panes.arrange(m.shown.Width, m.shown.Height) }

// bodyHeight is the height between the header and the two lines at the bottom.
func (m *model) bodyHeight() int { return max(m.shown.Height-3, 0) }

// subject returns the object that keys act on.
func (m *model) subject() detail.Subject {
	if m.page != nil {
		return m.page.Subject()
	}
	return m.panes.focused().Subject()
}

// say shows a message for a while.
func (m *model) say(st draw.Style, text string) {
	m.flash = flash{text: text, st: st, until: m.feed.now.Add(flashFor)}
}

// tickEvery returns the time until something on the screen changes by time alone.
func (m *model) tickEvery() time.Duration {
	_, covered := m.over.top().(*textBox)
	if m.feed.counting() && !m.layout().Tiny && !covered {
		return 100 * time.Millisecond
	}
	return time.Second
}
