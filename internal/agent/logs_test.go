package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// openSmall opens a log that is moved away at so many bytes.
func openSmall(t *testing.T, path string, limit int64) *logFile {
	t.Helper()
	l, err := openLog(path, func() {})
	if err != nil {
		t.Fatal(err)
	}
	l.limit, l.free = limit, func(string) (uint64, error) { return 1 << 40, nil }
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func write(t *testing.T, l *logFile, text string) {
	t.Helper()
	if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("%d of %d bytes written: %v", n, len(text), err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func TestLogRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l := openSmall(t, path, 20)
	write(t, l, "first line\n")
	write(t, l, "second\n")
	if got := read(t, path); got != "first line\nsecond\n" {
		t.Errorf("within the limit: %q", got)
	}
	write(t, l, "third\n")
	if now, before := read(t, path), read(t, path+".1"); now != "third\n" || before != "first line\nsecond\n" {
		t.Errorf("beyond it: %q and before %q", now, before)
	}
	// A line longer than the limit is written whole and gets a file to itself.
	long := strings.Repeat("x", 50) + "\n"
	write(t, l, long)
	write(t, l, "after\n")
	if now, before := read(t, path), read(t, path+".1"); now != "after\n" || before != long {
		t.Errorf("after a long line: %q and before %q", now, before)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := l.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	// A restart goes on where the file ends, and counts what is there.
	again := openSmall(t, path, 20)
	write(t, again, "restarted now\n")
	if now := read(t, path); now != "after\nrestarted now\n" {
		t.Errorf("after a restart: %q", now)
	}
	write(t, again, "more\n")
	if now := read(t, path); now != "more\n" {
		t.Errorf("after a restart and the limit: %q", now)
	}
	// The first record of an empty file does not push it away.
	fresh := openSmall(t, filepath.Join(t.TempDir(), "y.log"), 5)
	write(t, fresh, "longer than five\n")
	if _, err := os.Stat(fresh.path + ".1"); err == nil {
		t.Error("an empty file was moved away")
	}
}

// A log that cannot be moved away goes on growing; nothing is lost.
func TestLogThatCannotRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l := openSmall(t, path, 10)
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range 10 {
		line := fmt.Sprintf("line %d\n", i)
		want += line
		write(t, l, line)
	}
	if got := read(t, path); got != want {
		t.Errorf("got %q", got)
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}
	write(t, l, "now it can\n")
	if before := read(t, path+".1"); !strings.HasPrefix(before, want) {
		t.Errorf("not moved away later: %q", before)
	}
	// Somebody removed the file: the next rotation begins a new one.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, l, "lost one\n")
	write(t, l, "kept one\n")
	if got := read(t, path); got != "kept one\n" {
		t.Errorf("after the file was removed: %q", got)
	}
}

func TestLogConcurrentWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l := openSmall(t, path, 4000)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 100 {
				if _, err := fmt.Fprintf(l, "writer %d line %03d\n", g, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, line := range strings.Split(strings.TrimSuffix(read(t, path+".1")+read(t, path), "\n"), "\n") {
		if !strings.HasPrefix(line, "writer ") || len(line) != len("writer 0 line 000") {
			t.Errorf("broken line %q", line)
		}
	}
}

func TestTailLines(t *testing.T) {
	big := strings.Repeat("0123456789abcde\n", maxTail/16+1000)
	endless := strings.Repeat("x", maxTail+100)
	for _, tc := range []struct {
		name, content string
		n             int
		want          string
	}{
		{"empty", "", 5, ""},
		{"all", "a\nb\nc\n", 0, "a\nb\nc\n"},
		{"negative means all", "a\nb\n", -1, "a\nb\n"},
		{"last one", "a\nb\nc\n", 1, "c\n"},
		{"last two", "a\nb\nc\n", 2, "b\nc\n"},
		{"as many as there are", "a\nb\nc\n", 3, "a\nb\nc\n"},
		{"more than there are", "a\nb\nc\n", 30, "a\nb\nc\n"},
		{"last line without an end", "a\nb\nc", 2, "b\nc"},
		{"empty lines", "a\n\n\n", 2, "\n\n"},
		{"one line", "abc", 1, "abc"},
		{"large file", big, 0, big[len(big)-maxTail+16:]},
		{"large file, last lines", big, 3, strings.Repeat("0123456789abcde\n", 3)},
		{"a line longer than the limit", endless, 0, endless[100:]},
		{"cut at the end of a line", "x\n" + strings.Repeat("y", maxTail-1), 0, strings.Repeat("y", maxTail-1)},
		{"a long line that ends", endless + "\n", 1, endless[101:] + "\n"},
		{"a line after it", endless + "\nlast\n", 5, "last\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.log")
			if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, end, err := tailLines(f, tc.n)
			if err != nil || end != int64(len(tc.content)) {
				t.Errorf("ends at %d of %d: %v", end, len(tc.content), err)
			}
			if tc.name == "large file" { // begins with a whole line
				if !bytes.HasPrefix(got, []byte("0123")) || len(got) > maxTail || len(got) < maxTail-16 {
					t.Errorf("%d bytes beginning with %q", len(got), got[:8])
				}
				return
			}
			if string(got) != tc.want {
				t.Errorf("got %d bytes %.40q, want %d bytes %.40q", len(got), got, len(tc.want), tc.want)
			}
		})
	}
}

// follower reads a log as dynctl does.
type follower struct {
	mu   sync.Mutex
	text strings.Builder
	stop context.CancelFunc
	done chan error
}

func (a *Agent) ask(t *testing.T, req protocol.LogRequest) *follower {
	t.Helper()
	body, err := protocol.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{done: make(chan error, 1)}
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	go func() {
		f.done <- a.sendLog(ctx, &requestplane.Request{Body: body}, func(item any) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.text.Write(item.(protocol.LogChunk).Data)
			return nil
		})
	}()
	t.Cleanup(f.stop)
	return f
}

func (f *follower) read() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

func (f *follower) end(t *testing.T) {
	t.Helper()
	select {
	case err := <-f.done:
		if err != nil {
			t.Errorf("the follower ended with %v", err)
		}
	case <-time.After(long):
		t.Fatal("the follower does not end")
	}
}

// logAgent is an agent that has a log directory and nothing else.
func logAgent(t *testing.T) *Agent {
	t.Helper()
	a, err := New(testConfig(t), Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.dir.Create(); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReadLog(t *testing.T) {
	a := logAgent(t)
	l := openSmall(t, a.dir.AgentLog(), maxLogBytes)
	write(t, l, "one\ntwo\nthree\n")
	w := openSmall(t, a.dir.WorkerLog("worker-7"), maxLogBytes)
	write(t, w, "of worker-7\n")
	for want, req := range map[string]protocol.LogRequest{
		"two\nthree\n":      {Tail: 2},
		"one\ntwo\nthree\n": {},
		"of worker-7\n":     {Worker: "worker-7", Tail: 5},
	} {
		f := a.ask(t, req)
		f.end(t)
		if got := f.read(); got != want {
			t.Errorf("%+v: got %q, want %q", req, got, want)
		}
	}
	for _, name := range []string{"worker-8", "../../node_id", "worker-7/../dynamod", "dynamod", "worker-07"} {
		f := a.ask(t, protocol.LogRequest{Worker: name})
		var refused *requestplane.RemoteError
		if err := <-f.done; !errors.As(err, &refused) || refused.Kind != requestplane.KindInvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := a.sendLog(t.Context(), &requestplane.Request{Body: []byte{0xc1}}, nil); err == nil {
		t.Error("garbage is accepted")
	}
}

// A follower sees every line once and in order, whatever is moved away meanwhile.
func TestFollowAcrossRotation(t *testing.T) {
	a := logAgent(t)
	l := openSmall(t, a.dir.AgentLog(), 500)
	write(t, l, "before\n")
	f := a.ask(t, protocol.LogRequest{Tail: 10, Follow: true})
	patience.Until(t, "what is there arrives", func() bool { return f.read() == "before\n" })
	want := "before\n"
	for i := range 60 { // 40 bytes each: a new file after every twelve
		line := fmt.Sprintf("line %03d %s\n", i, strings.Repeat("x", 30))
		want += line
		write(t, l, line)
		if i%9 == 8 {
			patience.Until(t, "lines arrive", func() bool { return f.read() == want })
		}
	}
	patience.Until(t, "the rest arrives", func() bool { return f.read() == want })
	f.stop()
	f.end(t)
}

// A chunk larger than the reader's buffer arrives whole.
func TestFollowALot(t *testing.T) {
	a := logAgent(t)
	l := openSmall(t, a.dir.AgentLog(), maxLogBytes)
	f := a.ask(t, protocol.LogRequest{Follow: true})
	want := strings.Repeat(strings.Repeat("y", 99)+"\n", 3000)
	write(t, l, want)
	patience.Until(t, "all of it arrives", func() bool { return f.read() == want })
	close(a.noLogs) // the node leaves: followers go
	f.end(t)
}

func TestFollowerLeaves(t *testing.T) {
	a := logAgent(t)
	l := openSmall(t, a.dir.AgentLog(), maxLogBytes)
	write(t, l, "x\n")
	body, _ := protocol.Marshal(protocol.LogRequest{Follow: true})
	gone := errors.New("gone")
	if err := a.sendLog(t.Context(), &requestplane.Request{Body: body}, func(any) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// While the disk is nearly full a log drops lines, counts them, and says so afterwards.
func TestLogLeavesRoomForState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.log")
		l := openSmall(t, path, 1<<20)
		dropped, free := 0, uint64(logReserve)
		l.dropped, l.free = func() { dropped++ }, func(string) (uint64, error) { return free, nil }
		write(t, l, "before\n")
		free = logReserve - 1
		time.Sleep(roomEvery)
		write(t, l, "lost\n")
		write(t, l, "lost\n")
		free = logReserve
		time.Sleep(roomEvery)
		write(t, l, "after\n")
		write(t, l, "and on\n")
		got := strings.Split(read(t, path), "\n")
		if len(got) != 5 || got[0] != "before" || !strings.HasSuffix(got[1], "lines=2") || got[2] != "after" || got[3] != "and on" || dropped != 2 {
			t.Errorf("%d dropped, in the log: %q", dropped, got)
		}
	})
}

// A log that cannot be written fails nobody.
func TestLogOnAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no device that is always full here: ", err)
	}
	l := openSmall(t, filepath.Join(t.TempDir(), "x.log"), 1<<20)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.f.Close()
	l.f = full
	dropped := 0
	l.dropped = func() { dropped++ }
	write(t, l, "lost\n")
	write(t, l, "lost\n")
	if dropped != 2 {
		t.Errorf("%d lines dropped, want 2", dropped)
	}
	if err := l.f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	write(t, l, "after\n")
	if got := read(t, l.path); !strings.HasSuffix(got, "lines=2\nafter\n") {
		t.Errorf("in the log: %q", got)
	}
}
