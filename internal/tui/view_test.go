package tui

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
	"github.com/muesli/termenv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

func sizes() [][2]int { return [][2]int{{60, 12}, {80, 24}, {100, 30}, {160, 50}} }

func TestScreensMatchTheirPictures(t *testing.T) {
	tests := []struct {
		name string
		snap cluster.Snapshot
		opts Options
		keys []string
	}{
		{name: "panes", snap: labSnapshot()},
		{name: "odd", snap: oddSnapshot()},
		{name: "empty", snap: cluster.Snapshot{Time: noon(), Cluster: "lab", Fresh: cluster.Freshness{EtcdOK: true, NATSOK: true}}},
		{name: "worker", snap: labSnapshot(), keys: []string{"type:jjj", "enter"}},
		{name: "drained", snap: labSnapshot(), keys: []string{"G", "enter"}},
		{name: "route", snap: labSnapshot(), keys: []string{"6", "enter"}},
		{name: "lease", snap: labSnapshot(), keys: []string{"2", "enter"}},
		{name: "queue", snap: labSnapshot(), keys: []string{"3", "enter"}},
		{name: "latency", snap: labSnapshot(), keys: []string{"4", "enter"}},
		{name: "index", snap: labSnapshot(), keys: []string{"i"}},
		{name: "planner", snap: labSnapshot(), keys: []string{"P"}},
		{name: "planascii", snap: labSnapshot(), opts: Options{ASCII: true}, keys: []string{"P"}},
		{name: "planning", snap: labSnapshot(), keys: []string{"P", "enter"}},
		{name: "zoomrouter", snap: labSnapshot(), keys: []string{"6", "z"}},
		{name: "nodes", snap: labSnapshot(), keys: []string{"n"}},
		{name: "node", snap: labSnapshot(), keys: []string{"n", "enter"}},
		{name: "stale", snap: staleSnapshot()},
		{name: "paused", snap: labSnapshot(), keys: []string{"p"}},
		{name: "replay", snap: labSnapshot(), opts: Options{Replay: &Replay{First: noon().Add(-time.Minute), Last: noon().Add(time.Hour), Speed: 4}}},
		{name: "zoomworkers", snap: manyWorkers(1000), keys: []string{"z", "s", "s", "s", "s", "type:jjj"}},
		{name: "resume", snap: labSnapshot(), keys: []string{"G", "r", "tab"}},
		{name: "drain", snap: labSnapshot(), keys: []string{"j", "d"}},
		{name: "help", snap: labSnapshot(), keys: []string{"?"}},
		{name: "yaml", snap: labSnapshot(), keys: []string{"2", "y"}},
		{name: "ascii", snap: labSnapshot(), opts: Options{ASCII: true}},
		{name: "zoomqueue", snap: labSnapshot(), keys: []string{"3", "z"}},
		{name: "filter", snap: labSnapshot(), keys: []string{"/", "type:!decode"}},
	}
	for _, tt := range tests {
		for _, size := range sizes() {
			name := fmt.Sprintf("%s-%dx%d", tt.name, size[0], size[1])
			t.Run(name, func(t *testing.T) {
				sc := newScreen(t, tt.snap, size[0], size[1], tt.opts)
				sc.press(tt.keys...)
				view := sc.m.View()
				checkShape(t, view, size[0], size[1])
				golden(t, name, view)
			})
		}
	}
}

// In color the screen is the same: what a color says, a word or a sign says too.
func TestColoredScreensMatchTheirPictures(t *testing.T) {
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.TrueColor)
	r.SetHasDarkBackground(true)
	for _, size := range sizes() {
		name := fmt.Sprintf("color-%dx%d", size[0], size[1])
		t.Run(name, func(t *testing.T) {
			sc := newScreen(t, labSnapshot(), size[0], size[1], Options{})
			sc.press("j", "j")
			mono := sc.m.View()
			sc.m.theme, sc.m.dirty = draw.NewTheme(r, draw.UsualPalette()), true
			view := sc.m.View()
			checkShape(t, view, size[0], size[1])
			golden(t, name, view)
			trim := func(s string) string { return strings.Join(strings.Fields(s), " ") }
			if bare := ansi.Strip(view); trim(bare) != trim(mono) {
				t.Errorf("in color the screen says something else:\n%s", bare)
			}
		})
	}
}

func TestRenderEqualsTheScreen(t *testing.T) {
	for _, size := range sizes() {
		sc := newScreen(t, labSnapshot(), size[0], size[1], Options{})
		if got, want := Render(labSnapshot(), size[0], size[1], Options{}), sc.m.View(); got != want {
			t.Errorf("%dx%d: got:\n%s\nwant:\n%s", size[0], size[1], got, want)
		}
	}
}

func TestSmallScreenSaysWhatItNeeds(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 110, 11, Options{})
	sc.has("needs 60x12", "lab LIVE every 1s", "7 workers: 5 ready 1 degraded 1 draining", "queue 7")
	sc.press("j", "d")
	sc.has("Drain worker-2? 5 running", "[Cancel]")
	sc.press("enter")
	sc.has("cancelled: drain worker-2")
	if got := len(sc.src.actions()); got != 0 {
		t.Errorf("got %d actions, want none", got)
	}
}

func TestLeasesCountDownBetweenSnapshots(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 100, 30, Options{})
	sc.has("6.4s", "3.6s ago")
	sc.tick(1500 * time.Millisecond)
	sc.has("4.9s", "5.1s ago")
	sc.tick(2900 * time.Millisecond)
	sc.has("2.0s")
	// The source fell silent: what is shown is remembered, not known.
	sc.tick(time.Minute)
	sc.has("~1.4s", "STALE 1m: no snapshot arrives")
	s := labSnapshot()
	s.Leases[0].Left = 100 * time.Millisecond
	sc.send(snapshotMsg{s, sc.m.feed.now})
	sc.tick(200 * time.Millisecond)
	sc.has("✕ ended")
}

func TestNothingIsDrawnWhenNothingChanged(t *testing.T) {
	s := labSnapshot()
	sc := newScreen(t, s, 100, 30, Options{})
	sc.m.View()
	sc.send(tickMsg{sc.m.feed.now.Add(10 * time.Millisecond)})
	if sc.m.dirty {
		t.Error("a tick within the same tenth of a second draws")
	}
	sc.send(tickMsg{sc.m.feed.now.Add(90 * time.Millisecond)})
	if !sc.m.dirty {
		t.Error("a tick that changes a lease does not draw")
	}
	s.Leases = nil
	for i := range s.Workers {
		s.Workers[i].Lease = nil
	}
	sc = newScreen(t, s, 100, 30, Options{})
	sc.m.View()
	if got := sc.m.tickEvery(); got != time.Second {
		t.Errorf("without leases the clock ticks every %s, want 1s", got)
	}
	sc.send(tickMsg{sc.m.feed.now.Add(200 * time.Millisecond)})
	if sc.m.dirty {
		t.Error("a tick within the same second draws although nothing counts down")
	}
}

// A silent worker says for how long it has been silent and when its lease ends, also where the
// lease has no column.
func TestSilentWorkerCountsDown(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {100, 30}, {160, 50}} {
		s := labSnapshot()
		s.Workers[5].Stale, s.Workers[5].HeardAt = true, noon().Add(-5*time.Second)
		sc := newScreen(t, s, size[0], size[1], Options{})
		sc.has("▲ unknown 5s, lease 6s ")
		sc.tick(1500 * time.Millisecond)
		sc.has("▲ unknown 6s, lease 4s ")
		s.Workers[5].Lease = ptr(100 * time.Millisecond)
		sc.send(snapshotMsg{s, sc.m.feed.now})
		sc.tick(200 * time.Millisecond)
		sc.has("▲ unknown, lease ended ")
		s.Workers[5].Lease = nil
		sc.send(snapshotMsg{s, sc.m.feed.now})
		sc.has("▲ unknown 5s ")
	}
}

// The screen of the latencies shows how the percentiles went, and each decode worker's transfers.
func TestLatencyScreenShowsHowItWent(t *testing.T) {
	s := labSnapshot()
	sc := newScreen(t, s, 100, 30, Options{})
	var times cluster.Histogram
	times.Observe(40 * time.Millisecond)
	s.Workers[3].Stats.TransferTimes = &times
	for i, p95 := range []float64{500, 250} {
		s.Time, s.Latency.TTFT.P95 = noon().Add(time.Duration(i+1)*time.Second), ptr(p95)
		sc.send(snapshotMsg{s, sc.m.feed.now})
	}
	sc.press("4", "enter")
	sc.has("TTFT p95, last 0:02, max 500 ms", "▃█", "KV xfer p95, last 0:02, max 16.2 ms", "0.62    42.3")
	sc.press("esc")
	sc.has("4 latency, last 60s")
}

// Without a transfer within the window, the mean since the start is shown.
func TestTransfersWithoutAWindow(t *testing.T) {
	s := labSnapshot()
	s.Latency.Transfers = cluster.Percentiles{}
	newScreen(t, s, 100, 30, Options{}).has("xfer ms 9.4 mean so far")
	s.Latency.Transfer = nil
	newScreen(t, s, 100, 30, Options{}).has("xfer ms       -     -     -")
}

// Tables say unknown of a silent worker, too, as "dynctl ps" does.
func TestTablesSayUnknownOfASilentWorker(t *testing.T) {
	s := labSnapshot()
	s.Workers[5].Stale = true
	for state, o := range map[string]TableOptions{"unknown": {}, "▲ unknown": {Terminal: true}} {
		o.Views = []string{"workers"}
		for i, row := range Tables(s, o)[0].Rows {
			if (row[3] == state) != (i == 5) {
				t.Errorf("%s reads %q", row[0], row[3])
			}
		}
	}
}

func TestStaleKeepsTheLastValues(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 100, 30, Options{})
	s := labSnapshot()
	s.Fresh = cluster.Freshness{EtcdErr: "etcd 127.0.0.1:2379: deadline exceeded after 3s", NATSOK: true, StaleSince: noon().Add(-7 * time.Second), NextAttempt: noon().Add(1500 * time.Millisecond)}
	sc.send(snapshotMsg{s, noon()})
	sc.has("STALE 7s: etcd unreachable, retry in 2s", "worker-4", "~6.4s", "deadline exceeded after 3s")
	sc.tick(time.Second)
	sc.has("STALE 8s: etcd unreachable, retry in 1s", "~6.4s")
}

func TestSourceThatEndsLeavesTheScreen(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 100, 30, Options{})
	sc.send(endedMsg{})
	sc.has("ENDED", "worker-4")
}

func TestUnknownIsADashAndZeroIsZero(t *testing.T) {
	s := oddSnapshot()
	s.Workers = s.Workers[3:4] // every figure known and zero
	s.Workers[0].Stats.KVTotal = 1024
	sc := newScreen(t, s, 100, 30, Options{})
	sc.has("0/1024", "gaps 0", "lag -", "- events/s", "rejected")
	s.Workers[0] = cluster.Worker{WorkerStatus: cluster.WorkerStatus{Name: "worker-4", State: cluster.StatePending}}
	sc = newScreen(t, s, 100, 30, Options{})
	sc.lacks("0/0", "0/1024")
}

func TestControlCharactersNeverReachTheTerminal(t *testing.T) {
	s := oddSnapshot()
	s.Cluster = "lab\x1b]0;title\x07\u009b31m"
	s.Notices = []string{"line\nbreak\ttab \x1b[2J"}
	s.Fresh = cluster.Freshness{EtcdOK: true, NATSOK: true}
	for _, size := range sizes() {
		view := newScreen(t, s, size[0], size[1], Options{}).m.View()
		for _, r := range view {
			if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%v: control character %q in:\n%s", size, r, view)
			}
		}
	}
}

func TestASCIIUsesASCIIOnly(t *testing.T) {
	for _, keys := range [][]string{nil, {"?"}, {"d"}, {"enter"}, {"6", "enter"}, {":"}} {
		sc := newScreen(t, oddSnapshot(), 100, 30, Options{ASCII: true})
		sc.press(keys...)
		for _, r := range sc.m.View() {
			if r >= 0x7f {
				t.Fatalf("after %v: %q on the screen:\n%s", keys, r, sc.m.View())
			}
		}
	}
}

func TestLongNamesAreNeverCut(t *testing.T) {
	s := labSnapshot()
	long := "worker-with-a-name-of-forty-cells-in-all"
	s.Workers[2].Name, s.Leases[3].Owner, s.Events[0].Worker = long, long, long
	s.Decisions[0].Chosen = long
	for _, size := range sizes() {
		for _, p := range []string{"1", "2", "5", "6"} {
			sc := newScreen(t, s, size[0], size[1], Options{})
			sc.press(p, "z")
			sc.has(long)
		}
	}
}
