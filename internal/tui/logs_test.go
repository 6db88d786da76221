package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// stream makes a log of pieces, which ends with err, or with its reader if err is nil.
func stream(err error, pieces ...string) func(context.Context, func([]byte) error) error {
	return func(ctx context.Context, write func([]byte) error) error {
		for _, p := range pieces {
			if err := write([]byte(p)); err != nil {
				return err
			}
		}
		if err == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		return err
	}
}

// reading is a screen with an open log, whose reader runs.
type reading struct {
	*screen
	await tea.Cmd
	ended chan struct{} // closed when the reader returned
}

func openLog(t *testing.T, keys []string, streams ...func(context.Context, func([]byte) error) error) *reading {
	t.Helper()
	sc := lab(t)
	sc.src.streams = streams
	return sc.read(sc.press(keys...))
}

func (sc *screen) read(cmd tea.Cmd) *reading {
	sc.t.Helper()
	if cmd == nil {
		sc.t.Fatalf("no log is opened:\n%s", sc.m.View())
	}
	both := cmd().(tea.BatchMsg)
	r := &reading{sc, both[1], make(chan struct{})}
	go func() { both[0](); close(r.ended) }()
	sc.t.Cleanup(r.over)
	return r
}

// next shows what is new in the log.
func (r *reading) next() { r.await = r.send(r.await()) }

// until shows what is new until a text is on the screen.
func (r *reading) until(text string) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(r.m.View(), text); {
		if time.Now().After(end) {
			r.t.Fatalf("%q is never shown:\n%s", text, r.m.View())
		}
		r.next()
	}
}

// over closes the log, and fails if its reader stays.
func (r *reading) over() {
	if box, ok := r.m.over.top().(*logBox); ok {
		box.log.close()
	}
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		r.t.Error("the reader does not end")
	}
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %d.\n", i)
	}
	return b.String()
}

func TestLogsAreOfWorkersAndNodes(t *testing.T) {
	tests := []struct {
		keys []string
		want string
	}{
		{[]string{"j", "L"}, "worker-2"}, {[]string{"j", "enter", "L"}, "worker-2"}, {[]string{"n", "L"}, "n1"}, {[]string{"n", "enter", "L"}, "n1"},
		{[]string{":", "type:logs worker-5", "enter"}, "worker-5"}, {[]string{":", "type:logs n1", "enter"}, "n1"},
	}
	for _, tt := range tests {
		r := openLog(t, tt.keys, stream(nil, "one\ntwo\n"))
		r.until("two")
		r.has("log of "+tt.want, "following", "one", "1-2 of 2")
		r.press("esc")
		r.over()
		r.lacks("log of")
		if got := fmt.Sprint(r.src.logged); got != "["+tt.want+"]" {
			t.Errorf("%v: opened %s", tt.keys, got)
		}
	}
	sc := lab(t)
	sc.press("3", "L")
	sc.has("L: choose a worker in pane 1, or a node")
	sc.press(":", "type:logs worker-99", "enter")
	sc.has(`:logs: no worker "worker-99"`)
	sc = newScreen(t, labSnapshot(), 100, 30, Options{Replay: &Replay{}})
	sc.press("L")
	sc.has("L: a recording holds no logs")
}

func TestALogFollowsUntilItIsScrolled(t *testing.T) {
	more := make(chan string)
	r := openLog(t, []string{"L"}, func(ctx context.Context, write func([]byte) error) error {
		for {
			select {
			case s := <-more:
				_ = write([]byte(s))
			case <-ctx.Done():
				return nil
			}
		}
	})
	add := func(s string) { more <- s; r.next() }
	r.has("no lines yet")
	add(numbered(1, 100) + "line 10")
	r.has("line 100.", "of 100")
	add("1.\n")
	r.has("line 101.")
	r.press("k", "k")
	r.has("line 99.", "held")
	r.lacks("line 100.")
	add(numbered(102, 200))
	r.has("line 99.")
	r.lacks("line 102.")
	r.press("j")
	r.has("line 100.")
	r.press("g")
	r.has("line 1.", "1-24 of 200")
	r.press("G")
	r.has("line 200.", "following")
	r.press("ctrl+u")
	r.has("line 188.")
	r.lacks("line 189.")
	r.press("pgdown")
	r.has("line 200.", "following")
	r.press("right")
	r.lacks("line 200.")
	r.press("left")
	r.has("line 200.")
}

func TestALogIsFiltered(t *testing.T) {
	r := openLog(t, []string{"L"}, stream(nil, numbered(1, 100)))
	r.until("line 100.")
	r.press("/", "type:9.")
	r.has("/9.", "line 89.", "1-10 of 10")
	r.lacks("line 100.")
	r.press("enter")
	r.has("filter: 9.", "line 99.")
	r.press("k")
	r.has("line 99.") // all of them are visible
	r.press("/", "ctrl+u", "type:!line")
	r.has("no line passes the filter")
	r.press("esc")
	r.has("filter: 9.", "line 99.")
	r.press("/", "ctrl+u", "type:q", "backspace", "enter")
	r.has("line 100.")
}

func TestALogIsBounded(t *testing.T) {
	log := newLogTail(t.Context(), "worker-1")
	for i := range 3 * logLines {
		_ = log.write(fmt.Appendf(nil, "%d", i))
		_ = log.write([]byte(strings.Repeat("x", 2*logWidth)))
		_ = log.write([]byte("y\n"))
	}
	lines, first, _ := log.read()
	if len(lines) != logLines || first != 2*logLines || !strings.HasPrefix(lines[0], fmt.Sprint(first)+"x") {
		t.Errorf("%d lines from %d: %.9s", len(lines), first, lines[0])
	}
	for _, l := range lines {
		if len(l) != logWidth {
			t.Fatalf("a line of %d bytes", len(l))
		}
	}
}

// A log that cannot be read says why, and goes on once it can.
func TestALogGoesOnAfterItsStreamEnded(t *testing.T) {
	gone := errors.New("read log from node n1: connection reset")
	r := openLog(t, []string{"L"}, stream(gone, "before\n"), stream(nil, "before\nafter\n"))
	r.until("connection reset; it is tried again")
	r.has("not read now", "before")
	r.until("after")
	r.has("following", "1-2 of 2")
	r.lacks("connection reset")
}

func TestControlsInALogAreNotDrawn(t *testing.T) {
	r := openLog(t, []string{"L"}, stream(nil, "a\x1b[31mred\n"))
	r.until("red")
	r.lacks("\x1b")
}
