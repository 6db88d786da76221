package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/cluster"
)

func lab(t *testing.T) *screen { return newScreen(t, labSnapshot(), 100, 30, Options{}) }

func (sc *screen) cursorOn() string {
	return sc.m.subject().Worker
}

func TestMoving(t *testing.T) {
	tests := []struct {
		keys []string
		want string
	}{
		{[]string{"j"}, "worker-2"},
		{[]string{"down", "down", "k"}, "worker-2"},
		{[]string{"k"}, "worker-1"},
		{[]string{"G"}, "worker-7"},
		{[]string{"G", "j"}, "worker-7"},
		{[]string{"G", "g"}, "worker-1"},
		{[]string{"end", "home", "down"}, "worker-2"},
		{[]string{"ctrl+d"}, "worker-4"},
		{[]string{"ctrl+d", "ctrl+u"}, "worker-1"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.keys, " "), func(t *testing.T) {
			sc := lab(t)
			sc.press(tt.keys...)
			if got := sc.cursorOn(); got != tt.want {
				t.Errorf("cursor on %s, want %s", got, tt.want)
			}
		})
	}
}

func TestChoosingPanes(t *testing.T) {
	tests := []struct {
		keys []string
		want int // number of the pane
	}{
		{[]string{"3"}, 3},
		{[]string{"tab"}, 2},
		{[]string{"l", "right"}, 3},
		{[]string{"h"}, 6},
		{[]string{"shift+tab", "tab"}, 1},
		{[]string{"6", "l"}, 1},
		{[]string{":", "type:view router", "enter"}, 6},
		{[]string{"enter", "5"}, 5}, // leaves the screen of the worker
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.keys, " "), func(t *testing.T) {
			sc := lab(t)
			sc.press(tt.keys...)
			if got := sc.m.panes.at + 1; got != tt.want || sc.m.page != nil {
				t.Errorf("focus on pane %d, want %d", got, tt.want)
			}
		})
	}
}

func TestTheCursorFollowsItsRow(t *testing.T) {
	sc := lab(t)
	sc.press("j", "j") // worker-3
	s := labSnapshot()
	s.Workers = slices.Delete(s.Workers, 0, 2)
	sc.send(snapshotMsg{s, noon()})
	if got := sc.cursorOn(); got != "worker-3" {
		t.Errorf("cursor on %s, want worker-3", got)
	}
	sc.press("s", "s", "s", "s", "s") // kv
	sc.has("sort: kv ↓")
	if got := sc.cursorOn(); got != "worker-3" {
		t.Errorf("after sorting, cursor on %s, want worker-3", got)
	}
}

func TestEventsFollowUntilTheCursorMoves(t *testing.T) {
	sc := lab(t)
	sc.press("5", "j")
	sc.has("held")
	held := sc.m.subject().Value.(*cluster.KVEvent).EventID
	s := labSnapshot()
	s.Events = append([]cluster.KVEvent{{Worker: "worker-5", EventID: 900, Kind: cluster.KVStored}}, s.Events...)
	sc.send(snapshotMsg{s, noon()})
	if got := sc.m.subject().Value.(*cluster.KVEvent).EventID; got != held {
		t.Errorf("the cursor is on event %d, want %d: it follows its event", got, held)
	}
	sc.press("g")
	sc.send(snapshotMsg{labSnapshot(), noon()})
	if got := sc.m.subject().Value.(*cluster.KVEvent).EventID; got != labSnapshot().Events[0].EventID {
		t.Errorf("the cursor is on event %d, want the newest: the pane follows", got)
	}
}

// The lease that ends first stays in sight, however the leases change places.
func TestLeasesStayAtTheSoonest(t *testing.T) {
	sc := lab(t)
	s := labSnapshot()
	slices.Reverse(s.Leases)
	for i := range s.Leases {
		s.Leases[i].Left = time.Duration(i+1) * time.Second
	}
	sc.send(snapshotMsg{s, noon()})
	leases := sc.m.panes.all[1]
	if got := leases.Subject().Title; got != "lease "+s.Leases[0].ID.String() {
		t.Errorf("the cursor is on %s, want the lease that ends first", got)
	}
	if _, _, below := leases.Heading(); !strings.HasPrefix(below, "1-") {
		t.Errorf("the leases %s are on the screen, want the first", below)
	}
	sc.press("2", "j")
	below := leases.Subject().Title
	s = labSnapshot()
	sc.send(snapshotMsg{s, noon()})
	if got := leases.Subject().Title; got != below {
		t.Errorf("the cursor went from %v to %v", below, got)
	}
}

func TestSorting(t *testing.T) {
	order := func(sc *screen) string {
		var names []string
		for i := range sc.m.panes.rows().Len() {
			sc.m.panes.rows().Move(i)
			names = append(names, strings.TrimPrefix(sc.m.subject().Worker, "worker-"))
		}
		return strings.Join(names, "")
	}
	tests := []struct{ line, want string }{
		{"sort name", "1234567"},
		{"sort name desc", "7654321"},
		{"sort role", "3456712"},
		{"sort seqs", "4351276"},
		{"sort kv", "4315267"},
		{"sort tok asc", "6753421"},
		{"sort lease", "6241735"},
		{"sort up asc", "6541237"},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			sc := lab(t)
			sc.press(":", "type:"+tt.line, "enter")
			if got := order(sc); got != tt.want {
				t.Errorf("order %s, want %s", got, tt.want)
			}
		})
	}
	sc := lab(t)
	sc.press("S")
	if got := order(sc); got != "7654321" {
		t.Errorf("after S: order %s", got)
	}
	// Unknown values come last in both directions.
	s := labSnapshot()
	s.Workers[2].TokS = nil
	for _, dir := range []string{"asc", "desc"} {
		sc := newScreen(t, s, 100, 30, Options{})
		sc.press(":", "type:sort tok "+dir, "enter")
		if got := order(sc); !strings.HasSuffix(got, "3") {
			t.Errorf("%s: order %s, want worker-3 last", dir, got)
		}
	}
}

func TestFilter(t *testing.T) {
	sc := lab(t)
	sc.press("/", "type:DECODE gpu")
	sc.has("1 workers (4 of 7)", "worker-3")
	sc.lacks("worker-1  prefill", "cpu0 32c")
	sc.press("enter")
	sc.has("filter: DECODE gpu")
	sc.press("/", "type:x", "esc")
	sc.has("1 workers (4 of 7)")
	sc.press("esc")
	sc.has("1 workers (7)", "filter: none")
	sc.press("/", "type:!decode")
	sc.has("1 workers (2 of 7)")
	sc.press("ctrl+u", "type:nothing-like-it", "enter")
	sc.has(`nothing of 7 matches "nothing-like-it"`)
	sc.press("enter")
	sc.has("enter: no row under the cursor")
	// Pasted text goes into the prompt and never acts as keys.
	sc = lab(t)
	sc.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("dq"), Paste: true})
	if sc.m.over.top() != nil {
		t.Error("pasted text opened a dialog")
	}
	sc.press("/")
	sc.send(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("worker-6\x1b[2J"), Paste: true})
	sc.has("/worker-6?[2J")
}

func TestKeysThatCannotActSayWhy(t *testing.T) {
	gone := labSnapshot()
	gone.Workers[0].State = cluster.StateLost
	removing := labSnapshot()
	removing.Workers[0].Desire = cluster.DesireRemove
	drained := labSnapshot()
	drained.Workers[0].State = cluster.StateDrained
	tests := []struct {
		name string
		snap cluster.Snapshot
		opts Options
		keys []string
		want string
	}{
		{"drain in another pane", labSnapshot(), Options{}, []string{"3", "d"}, "d: choose a worker in pane 1"},
		{"drain twice", labSnapshot(), Options{}, []string{"G", "d"}, "d: worker-7 is draining already; r resumes it"},
		{"drain drained", drained, Options{}, []string{"d"}, "d: worker-1 is drained already"},
		{"drain lost", gone, Options{}, []string{"d"}, "d: worker-1 is lost: nothing to drain"},
		{"drain removed", removing, Options{}, []string{"d"}, "d: worker-1 is being removed already"},
		{"resume removed", removing, Options{}, []string{"r"}, "r: worker-1 is being removed; it cannot be resumed"},
		{"resume ready", labSnapshot(), Options{}, []string{"r"}, "r: worker-1 is not draining"},
		{"read-only", labSnapshot(), Options{ReadOnly: true}, []string{"d"}, "d: read-only: started with --read-only"},
		{"node lease", labSnapshot(), Options{}, []string{"2", "G", "k", "d"}, "d: the lease of n1 is not a worker's"},
		{"sort events", labSnapshot(), Options{}, []string{"5", "s"}, "s: KV events stay newest first"},
		{"sort latency", labSnapshot(), Options{}, []string{"4", "s"}, "s: latency has no rows to sort"},
		{"filter queue", labSnapshot(), Options{}, []string{"3", "/"}, "/: queue depth has no rows to filter"},
		{"move in queue", labSnapshot(), Options{}, []string{"3", "j"}, "j ↓: queue depth has no rows"},
		{"inspect latency", labSnapshot(), Options{}, []string{"4", "enter", "enter"}, "enter: there is nothing more to inspect here"},
		{"inspect further than a decision", labSnapshot(), Options{}, []string{"6", "enter", "enter"}, "enter: there is nothing more to inspect here"},
		{"drain on a node", labSnapshot(), Options{}, []string{"n", "enter", "d"}, "d: this screen is not about a worker"},
		{"zoom the nodes", labSnapshot(), Options{}, []string{"n", "z"}, "z: the nodes cover the screen already"},
		{"nothing to undo", labSnapshot(), Options{}, []string{"esc"}, "esc: nothing to go back from; q leaves"},
		{"zoom on a worker", labSnapshot(), Options{}, []string{"enter", "z"}, "z: esc first"},
		{"fastest", labSnapshot(), Options{Interval: 250 * time.Millisecond}, []string{"+"}, "+: every 250ms is the shortest interval"},
		{"unknown command", labSnapshot(), Options{}, []string{":", "type:explode", "enter"}, ":explode: no such command; there are :drain"},
		{"unknown worker", labSnapshot(), Options{}, []string{":", "type:drain worker-9", "enter"}, `:drain: no worker "worker-9" in cluster lab`},
		{"wrong deadline", labSnapshot(), Options{}, []string{":", "type:drain worker-1 5", "enter"}, `:drain: deadline "5": give a duration like 5m`},
		{"wrong usage", labSnapshot(), Options{}, []string{":", "type:resume", "enter"}, ":resume: wrong arguments: :resume <worker>"},
		{"wrong column", labSnapshot(), Options{}, []string{":", "type:sort height", "enter"}, `:sort: no column "height" in workers; there are name, role`},
		{"wrong pane", labSnapshot(), Options{}, []string{":", "type:view attic", "enter"}, `:view: no pane "attic"; there are workers`},
		{"wrong interval", labSnapshot(), Options{}, []string{":", "type:interval 1h", "enter"}, `:interval: "1h" is not a duration between 250ms and 1m`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := newScreen(t, tt.snap, 100, 30, tt.opts)
			sc.press(tt.keys...)
			sc.has(tt.want)
			if sc.m.over.top() != nil {
				t.Error("a dialog is open")
			}
			sc.tick(flashFor)
			sc.lacks(tt.want)
		})
	}
}

func TestPauseFreezesAndKeepsTheNewest(t *testing.T) {
	sc := lab(t)
	sc.press("p")
	s := labSnapshot()
	s.Workers[0].Stats.Running = 777
	sc.send(snapshotMsg{s, noon().Add(2 * time.Second)})
	sc.tick(10 * time.Second)
	sc.has("PAUSED 12s", "6.4s")
	sc.lacks("777")
	sc.press("p")
	sc.has("777")
	sc.lacks("PAUSED")
}

func TestIntervalMouseSaveAndLeave(t *testing.T) {
	sc := lab(t)
	sc.run(sc.press("-"))
	sc.has("LIVE every 2s")
	if sc.src.interval != 2*time.Second {
		t.Errorf("the source looks every %s, want 2s", sc.src.interval)
	}
	sc.run(sc.press("+", "+"))
	sc.has("LIVE every 500ms")
	sc.run(sc.press(":", "type:interval 5s", "enter"))
	sc.has("LIVE every 5s")

	sc.press("M")
	sc.has("mouse on")
	sc.send(tea.MouseMsg{X: 5, Y: 14, Button: tea.MouseButtonLeft, Action: tea.MouseActionPress})
	if got := sc.cursorOn(); sc.m.panes.at != 1 || got != "worker-2" {
		t.Errorf("a click chose pane %d, %s; want 2, worker-2", sc.m.panes.at+1, got)
	}
	sc.send(tea.MouseMsg{X: 5, Y: 4, Button: tea.MouseButtonWheelDown})
	if got := sc.m.panes.all[0].Subject().Worker; got != "worker-4" {
		t.Errorf("the wheel moved to %s, want worker-4", got)
	}

	saved := map[string]string{}
	sc.m.opts.Save = func(name string, text []byte) error { saved[name] = string(text); return nil }
	sc.run(sc.press("w"))
	sc.has("screen saved to dynctl-top-20260314-120431.txt")
	if text := saved["dynctl-top-20260314-120431.txt"]; !strings.Contains(text, "worker-4") || strings.Contains(text, "\x1b") {
		t.Errorf("saved:\n%s", text)
	}

	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {":", "type:q", "enter"}, {"d", "ctrl+c"}, {"/", "ctrl+c"}} {
		cmd := lab(t).press(keys...)
		if cmd == nil {
			t.Fatalf("%v: no command", keys)
		}
		if _, ok := cmd().(tea.QuitMsg); !ok {
			t.Errorf("%v does not leave", keys)
		}
	}
	if _, ok := lab(t).press("ctrl+z")().(tea.SuspendMsg); !ok {
		t.Error("ctrl-z does not suspend")
	}
	if lab(t).press("ctrl+l") == nil {
		t.Error("ctrl-l does not redraw")
	}
}

func TestHelpIsMadeFromTheKeyMap(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 160, 80, Options{})
	sc.press("?")
	for _, k := range Keys() {
		sc.has(k.Keys, k.Help)
	}
	sc.has("not now: worker-1 is not draining", ":drain <worker> [deadline]", "● ready")
	sc.press("j", "esc")
	sc.lacks("Command line")
}

// The key map is data: no key twice, every entry explained and able to act.
func TestKeyMapIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range keyMap(paneTable()) {
		if b.help == "" || b.show == "" || b.group == "" || b.on == 0 || b.run == nil {
			t.Errorf("%v lacks an entry", b.keys)
		}
		if (b.hint == "") != (b.rank == 0) {
			t.Errorf("%v: a word in the footer needs a rank", b.keys)
		}
		for _, k := range b.keys {
			if seen[k] {
				t.Errorf("%q is bound twice", k)
			}
			seen[k] = true
		}
	}
	for _, k := range []string{"j", "k", "up", "down", "g", "G", "ctrl+d", "ctrl+u", "/", "h", "l", "left", "right", "tab", "1", "6", ":", "enter", "esc", "s", "S", "d", "r", "p", "+", "-", "y", "w", "z", "?", "M", "ctrl+z", "q", "ctrl+c", "ctrl+l"} {
		if !seen[k] {
			t.Errorf("%q is not bound", k)
		}
	}
}
