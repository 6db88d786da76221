package tui

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/tui/draw"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// fakeSource is a source the test feeds by hand; it remembers what it was asked.
type fakeSource struct {
	ch       chan cluster.Snapshot
	readOnly string
	err      error

	mu       sync.Mutex
	acts     []client.Action
	interval time.Duration
	looked   []string // workers that were to be inspected
	wound    []string // what a replay was asked
	logged   []string // whose logs were opened
	streams  []func(ctx context.Context, write func([]byte) error) error
}

func newFakeSource() *fakeSource { return &fakeSource{ch: make(chan cluster.Snapshot, 1)} }

func (f *fakeSource) Snapshots() <-chan cluster.Snapshot { return f.ch }
func (f *fakeSource) ReadOnly() string                   { return f.readOnly }
func (f *fakeSource) Close() error                       { close(f.ch); return nil }

func (f *fakeSource) SetInterval(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interval = d
}

func (f *fakeSource) Inspect(worker string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = append(f.looked, worker)
}

func (f *fakeSource) Act(_ context.Context, a client.Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, a)
	return f.err
}

// Log hands the streams that the test made to the reader, one after the other, and then
// waits for the reader to leave.
func (f *fakeSource) Log(ctx context.Context, name string, _ int, write func([]byte) error) error {
	f.mu.Lock()
	f.logged = append(f.logged, name)
	stream := f.streams[min(len(f.logged)-1, len(f.streams)-1)]
	f.mu.Unlock()
	return stream(ctx, write)
}

func (f *fakeSource) wind(order string, v any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wound = append(f.wound, fmt.Sprint(order, " ", v))
}

func (f *fakeSource) Hold(held bool)         { f.wind("hold", held) }
func (f *fakeSource) Step(n int)             { f.wind("step", n) }
func (f *fakeSource) Seek(by time.Duration)  { f.wind("seek", by) }
func (f *fakeSource) SetSpeed(speed float64) { f.wind("speed", speed) }

func (f *fakeSource) actions() []client.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]client.Action(nil), f.acts...)
}

// screen drives a model as the program would, without a terminal.
type screen struct {
	t   *testing.T
	m   *model
	src *fakeSource
}

// newScreen is a screen of the given size that shows s, with color off.
func newScreen(t *testing.T, s cluster.Snapshot, w, h int, opts Options) *screen {
	t.Helper()
	return newScreenOf(t, paneTable(), s, w, h, opts)
}

// newScreenOf is a screen with the panes of a table.
func newScreenOf(t *testing.T, panes []paneSpec, s cluster.Snapshot, w, h int, opts Options) *screen {
	t.Helper()
	opts.Now = noon
	src := newFakeSource()
	c := &commander{ctx: t.Context(), now: noon}
	sc := &screen{t, newModel(src, c, draw.PlainTheme(), opts, panes), src}
	sc.send(tea.WindowSizeMsg{Width: w, Height: h})
	sc.send(snapshotMsg{s, noon()})
	return sc
}

// send delivers a message and returns the command it led to.
func (sc *screen) send(msg tea.Msg) tea.Cmd {
	_, cmd := sc.m.Update(msg)
	return cmd
}

// press types keys: names of keys, or text that is typed letter by letter when
// it starts with "type:".
func (sc *screen) press(keys ...string) tea.Cmd {
	var cmd tea.Cmd
	for _, k := range keys {
		if text, ok := strings.CutPrefix(k, "type:"); ok {
			for _, r := range text {
				cmd = sc.send(keyMsg(string(r)))
			}
			continue
		}
		cmd = sc.send(keyMsg(k))
	}
	return cmd
}

// run carries a command out and delivers what it reports.
func (sc *screen) run(cmd tea.Cmd) {
	sc.t.Helper()
	if cmd == nil {
		sc.t.Fatal("no command")
	}
	sc.send(cmd())
}

func (sc *screen) tick(d time.Duration) { sc.send(tickMsg{sc.m.feed.now.Add(d)}) }

func (sc *screen) has(want ...string) {
	sc.t.Helper()
	view := sc.m.View()
	for _, w := range want {
		if !strings.Contains(view, w) {
			sc.t.Errorf("screen does not show %q:\n%s", w, view)
		}
	}
}

func (sc *screen) lacks(not ...string) {
	sc.t.Helper()
	view := sc.m.View()
	for _, w := range not {
		if strings.Contains(view, w) {
			sc.t.Errorf("screen shows %q:\n%s", w, view)
		}
	}
}

func keyMsg(name string) tea.KeyMsg {
	types := map[string]tea.KeyType{
		"enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "shift+tab": tea.KeyShiftTab, "up": tea.KeyUp, "down": tea.KeyDown,
		"left": tea.KeyLeft, "right": tea.KeyRight, "backspace": tea.KeyBackspace, "home": tea.KeyHome, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp,
		"ctrl+c": tea.KeyCtrlC, "ctrl+z": tea.KeyCtrlZ, "ctrl+l": tea.KeyCtrlL, "ctrl+d": tea.KeyCtrlD, "ctrl+u": tea.KeyCtrlU, "ctrl+w": tea.KeyCtrlW,
	}
	if t, ok := types[name]; ok {
		return tea.KeyMsg{Type: t}
	}
	if name == " " {
		return tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}}
	}
	return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(name)}
}

// golden compares text with a file under testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	got += "\n"
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update to write it", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

var errRefused = errors.New("etcd 127.0.0.1:2379: deadline exceeded after 3s")
