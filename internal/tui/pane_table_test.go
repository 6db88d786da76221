package tui

import (
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/pane"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// Slots, keys and names belong to one pane each.
func TestPaneTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range paneTable() {
		marks := []string{"key " + s.key, "name " + s.name}
		if s.slot == layout.Cover {
			if s.about == "" {
				t.Errorf("%s covers the screen and the help does not say what it is", s.name)
			}
		} else {
			marks = append(marks, "slot "+string(rune('0'+s.slot)))
		}
		for _, m := range marks {
			if seen[m] {
				t.Errorf("%s: %s is taken", s.name, m)
			}
			seen[m] = true
		}
	}
}

// reasons is a pane of this test: the workers with the reason of their state.
type reasons struct {
	m             *moment.Moment
	rows          *table.List
	width, height int
	updates       int
	shouts        bool
}

func newReasons(m *moment.Moment) pane.Pane {
	p := &reasons{m: m}
	p.rows = table.NewList(table.Source{
		N:    func() int { return len(m.Snap.Workers) },
		Key:  func(i int) table.Key { return table.Key{Name: m.Snap.Workers[i].Name} },
		Text: func(i int) string { return m.Snap.Workers[i].Name + " " + m.Snap.Workers[i].Reason },
		Keys: []table.SortKey{
			{ID: "name", Text: func(i int) string { return m.Snap.Workers[i].Name }},
			{ID: "reason", Text: func(i int) string { return m.Snap.Workers[i].Reason }},
		},
	})
	return p
}

func (p *reasons) Update() { p.updates++; p.rows.Rebuild() }

func (p *reasons) Size(w, h int) { p.width, p.height = w, h; p.rows.Scroll(h - 1) }

func (p *reasons) Rows() *table.List { return p.rows }

func (p *reasons) Heading() (title, note, below string) {
	return " (" + p.rows.Count() + ")", p.rows.Order(p.m.Glyphs), p.rows.Place()
}

func (p *reasons) Draw(a draw.Area, focused bool) {
	p.rows.Draw(a, p.m.Glyphs, []table.Column{
		{Title: "WHO", Width: 10, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Strong.Text(p.m.Snap.Workers[i].Name)} }},
		{Title: "WHY", Width: 10, Cell: func(i, _ int) []draw.Span {
			why := p.m.Snap.Workers[i].Reason
			if p.shouts {
				why = strings.ToUpper(why)
			}
			return []draw.Span{draw.Plain.Text(why)}
		}},
	}, nil, focused)
}

func (p *reasons) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return detail.Subject{NoValue: "no reason", NoWorker: "no reason", NoOpen: "no reason"}
	}
	w := &p.m.Snap.Workers[row]
	return detail.Subject{Title: w.Name, Value: w, Worker: w.Name, Open: detail.Worker(p.m, w.Name)}
}

func (p *reasons) Keys() []pane.Key {
	return []pane.Key{{Name: "u", Help: "print the reasons louder", Hint: "louder", Run: func() { p.shouts = true }, Cannot: func() string {
		if p.shouts {
			return "it is loud already"
		}
		return ""
	}}}
}

func (p *reasons) Help() []pane.Term {
	return []pane.Term{{Word: "WHY", Meaning: "what a worker says of itself"}}
}

func (p *reasons) Table(plain.Options) plain.Table { return plain.New("reasons", "WHO", "WHY") }

// A pane is added by its file and its line in the table: keys, help, filter, size, the
// command line and --view know it.
func TestAddingAPane(t *testing.T) {
	panes := append(paneTable(), paneSpec{layout.Cover, "x", "reasons", "reasons", "why workers are as they are", newReasons})
	sc := newScreenOf(t, panes, labSnapshot(), 100, 30, Options{})
	added := sc.m.panes.all[len(panes)-1].Pane.(*reasons)

	sc.press("x")
	sc.has("›x reasons (7)", "sort: name ↑", "WHO", "kv-high", "u louder")
	if added.width != 96 || added.height != 25 || added.updates != 1 {
		t.Errorf("the pane has %dx%d and %d snapshots, want 96x25 and 1", added.width, added.height, added.updates)
	}
	sc.send(tea.WindowSizeMsg{Width: 60, Height: 12})
	checkShape(t, sc.m.View(), 60, 12)
	if added.width != 56 || added.height != 7 {
		t.Errorf("after the screen shrank the pane has %dx%d, want 56x7", added.width, added.height)
	}
	sc.send(tea.WindowSizeMsg{Width: 100, Height: 90})

	sc.press("u")
	sc.has("KV-HIGH")
	sc.press("u")
	sc.has("u: it is loud already")
	sc.press("?")
	sc.has("This pane", "print the reasons louder", "not now: it is loud already", "why workers are as they are", "WHY", "what a worker says of itself", ":reasons")
	sc.press("esc", "z")
	sc.has("z: the reasons cover the screen already")

	sc.press("/", "type:kv-high", "enter")
	sc.has("x reasons (1 of 7)")
	sc.press("y")
	sc.has("name: worker-4")
	sc.press("esc", "d")
	sc.has("Drain worker-4?")
	sc.press("esc", "enter")
	sc.has("› worker-4", "sequences (17+2)")
	sc.press("u") // belongs to the pane
	sc.press("esc", "esc")
	sc.has("x reasons (7)")
	sc.press("s")
	sc.has("sort: reason ↑")
	sc.press(":", "type:sort name desc", "enter")
	if got := sc.m.subject().Worker; got != "worker-4" {
		t.Errorf("after sorting the cursor is on %s, want worker-4", got)
	}
	sc.press("g")
	if got := sc.m.subject().Worker; got != "worker-7" {
		t.Errorf("the first row is %s, want worker-7", got)
	}
	sc.press("esc")
	sc.has("›1 workers")
	sc.press("u")
	sc.lacks("u:")
	sc.press(":", "type:rea", "tab", "enter")
	sc.has("›x reasons")
	sc.press("tab")
	sc.has("›2 leases")

	s := labSnapshot()
	s.Workers = s.Workers[:2]
	sc.send(snapshotMsg{s, noon()})
	sc.press(":", "type:view reasons", "enter")
	sc.has("x reasons (2)")
	sc = newScreenOf(t, panes, cluster.Snapshot{}, 100, 30, Options{View: "reasons"})
	sc.has("›x reasons (0)")
}
