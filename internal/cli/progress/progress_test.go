package progress

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s\nwant\n%s", path, got, want)
	}
}

// fakeClock starts at a fixed moment and moves when told.
type fakeClock struct{ t time.Time }

func newClock() *fakeClock {
	return &fakeClock{time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) now() time.Time          { return c.t }
func (c *fakeClock) advance(d time.Duration) { c.t = c.t.Add(d) }

func share(f float64) *float64 { return &f }

func upScreen() Screen {
	row := func(item, kind, device, word string, s State) Row {
		return Row{Item: item, Kind: kind, Word: word, State: s, Cells: []string{item, kind, device, word}, Line: item + " " + kind + " " + word}
	}
	etcd := row("etcd", "embedded", "", "ready", Done)
	etcd.Detail, etcd.Took = "127.0.0.1:2379", 400*time.Millisecond
	w1 := row("worker-1", "prefill", "gpu0", "ready", Done)
	w1.Detail, w1.Took = "4096 KV blocks", 11200*time.Millisecond
	w4 := row("worker-4", "decode", "gpu3", "loading", Running)
	w4.Share, w4.After, w4.Took = share(0.63), "63%", 9800*time.Millisecond
	w6 := row("worker-6", "decode", "gpu5", "failed", Failed)
	w6.Detail = "needs 9.4 GiB,\n3.1 GiB \x1b[31mfree"
	f := row("frontend", "", "", "waiting", Waiting)
	f.Detail = "for 1 more decode worker (needs 2)"
	return Screen{Operation: "up", Subject: "lab", Title: "lab  starting  2 of 5 ready", Rows: []Row{etcd, w1, w4, w6, f}}
}

func drainScreen() Screen {
	return Screen{
		Operation: "drain", Subject: "worker-7", Title: "worker-7  decode  gpu5  draining   deadline in 4:41",
		Rows: []Row{
			{Item: "stop-new-requests", State: Done, Cells: []string{"stop new requests"}, Detail: "left discovery", Took: 300 * time.Millisecond, Line: "worker-7 stop-new-requests done"},
			{
				Item: "finish-sequences", State: Running, Cells: []string{"finish sequences"}, Detail: "3 of 14 left", Share: share(11.0 / 14), After: "~0:50",
				More: []string{"r-8e77  1,204 tok out  2:08   r-8f02  310 tok out  0:31"}, Line: "worker-7 finish-sequences 3/14",
			},
			{Item: "leave-cluster", State: Waiting, Cells: []string{"leave cluster"}, Detail: "revoke lease, deregister", Line: ""},
		},
		Footer: "ctrl-c stops watching only.  undo: dynctl resume worker-7   force: --deadline 0 --yes",
	}
}

func TestFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		screen        Screen
		width, height int
		color         bool
	}{
		"up-100x30":    {upScreen(), 100, 30, false},
		"up-60x8":      {upScreen(), 60, 7, false},
		"up-color":     {upScreen(), 80, 24, true},
		"drain-100x30": {drainScreen(), 100, 30, false},
		"drain-50x12":  {drainScreen(), 50, 12, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &animated{screen: tc.screen, palette: term.Palette{On: tc.color}}
			lines := a.layout(tc.width-1, tc.height, 21*time.Second+250*time.Millisecond)
			for _, l := range lines {
				if w := term.Width(l); w >= tc.width {
					t.Errorf("%d cells of %d: %q", w, tc.width, l)
				}
			}
			if len(lines) >= tc.height {
				t.Errorf("%d lines of %d", len(lines), tc.height)
			}
			golden(t, name, strings.Join(lines, "\n")+"\n")
		})
	}
}

func display(mode string, clock *fakeClock, tty bool) (Display, *bytes.Buffer) {
	var b bytes.Buffer
	s := term.Streams{Err: &b, ErrTTY: tty, Measure: func() (int, int) { return 100, 30 }}
	return New(Options{Mode: mode, Streams: s, Now: clock.now}), &b
}

func TestTheRendererFollowsTheTerminal(t *testing.T) {
	for _, tc := range []struct {
		mode string
		tty  bool
		env  term.Env
		want string
	}{
		{"auto", true, term.Env{"TERM=xterm"}, "*progress.animated"},
		{"", false, nil, "*progress.lines"},
		{"auto", true, term.Env{"TERM=xterm", "CI=1"}, "*progress.lines"},
		{"auto", true, term.Env{"TERM=xterm", "ACCESSIBLE=1"}, "*progress.lines"},
		{"tty", false, nil, "*progress.animated"},
		{"json", true, nil, "*progress.documents"},
		{"quiet", true, nil, "progress.nothing"},
		{"plain", true, nil, "*progress.lines"},
	} {
		d := New(Options{Mode: tc.mode, Streams: term.Streams{ErrTTY: tc.tty}, Env: tc.env})
		if got := fmt.Sprintf("%T", d); got != tc.want {
			t.Errorf("%+v: got %s", tc, got)
		}
	}
}

func TestPlainPrintsChangesOnly(t *testing.T) {
	clock := newClock()
	d, out := display("plain", clock, false)
	s := drainScreen()
	d.Show(s)
	clock.advance(19 * time.Second)
	d.Show(s)
	s.Rows[1].Line = "worker-7 finish-sequences 2/14"
	s.Rows[1].After = "~0:10" // changes all the time, not worth a line
	d.Show(s)
	d.Show(s)
	clock.advance(31 * time.Second)
	d.Show(s)
	d.Close()
	want := `00:00 worker-7 stop-new-requests done
00:00 worker-7 finish-sequences 3/14
00:19 worker-7 finish-sequences 2/14
00:50 still waiting: worker-7 finish-sequences 2/14
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestJSONPrintsOneDocumentForAChange(t *testing.T) {
	clock := newClock()
	d, out := display("json", clock, true)
	s := upScreen()
	d.Show(s)
	clock.advance(1500 * time.Millisecond)
	s.Rows[2].Line, s.Rows[2].Word, s.Rows[2].State = "worker-4 decode ready", "ready", Done
	d.Show(s)
	d.Show(s)
	d.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d documents, want 6:\n%s", len(lines), out)
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(lines[5]), &doc); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"time": "2026-07-01T12:00:01.5Z", "elapsed_ms": 1500.0, "operation": "up", "subject": "lab", "item": "worker-4",
		"kind": "decode", "state": "ready", "phase": "done", "progress": 0.63,
	} {
		if doc[key] != want {
			t.Errorf("%s is %v, want %v", key, doc[key], want)
		}
	}
}

func TestAnimated(t *testing.T) {
	clock := newClock()
	d, out := display("tty", clock, true)
	s := upScreen()
	d.Show(s)
	clock.advance(299 * time.Millisecond)
	d.Show(s)
	if out.Len() > 0 {
		t.Fatalf("drawn before 300 ms: %q", out)
	}
	clock.advance(time.Millisecond)
	d.Show(s)
	if n := strings.Count(out.String(), "\n"); n != 6 || strings.Contains(out.String(), "\x1b[6A") {
		t.Fatalf("first frame of %d lines: %q", n, out)
	}
	out.Reset()
	clock.advance(50 * time.Millisecond)
	d.Show(s)
	if out.Len() > 0 {
		t.Errorf("a second frame after 50 ms: %q", out)
	}
	s.Rows = s.Rows[:5]
	s.Title = "lab  5 of 5 ready"
	d.Show(s)
	d.Close()
	if got := out.String(); !strings.HasPrefix(got, "\x1b[6A\r\x1b[2K lab  5 of 5 ready") {
		t.Errorf("the last frame is not drawn over the first: %q", got)
	}
	n := out.Len()
	d.Close()
	if out.Len() != n {
		t.Error("a second Close draws again")
	}
}

func TestWhatEndsAtOnceDrawsNothing(t *testing.T) {
	clock := newClock()
	d, out := display("tty", clock, true)
	d.Show(upScreen())
	clock.advance(250 * time.Millisecond)
	d.Close()
	if out.Len() > 0 {
		t.Errorf("got %q", out)
	}
}

func TestFitKeepsWhatIsNotDone(t *testing.T) {
	var rows []Row
	for i := range 40 {
		r := Row{Item: fmt.Sprint(i), State: Done, More: []string{"x"}}
		if i%10 == 5 {
			r.State = Running
		}
		rows = append(rows, r)
	}
	kept, hidden := fit(rows, 9)
	if len(kept) != 8 || hidden != 32 {
		t.Fatalf("kept %d, hidden %d", len(kept), hidden)
	}
	open, last := 0, -1
	for _, r := range kept {
		var n int
		fmt.Sscan(r.Item, &n)
		if n < last {
			t.Errorf("row %d after %d", n, last)
		}
		last = n
		if r.State == Running {
			open++
		}
	}
	if open != 4 {
		t.Errorf("%d of 4 running rows are kept", open)
	}
}

func TestClock(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0:00", -time.Second: "0:00", 281 * time.Second: "4:41", 3725 * time.Second: "1:02:05",
	} {
		if got := clock(d); got != want {
			t.Errorf("clock(%s) = %s, want %s", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{400 * time.Millisecond: "0.4s", 12 * time.Second: "12.0s", 128 * time.Second: "2:08"} {
		if got := took(d); got != want {
			t.Errorf("took(%s) = %s, want %s", d, got, want)
		}
	}
}
