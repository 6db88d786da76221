package recording

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

func start() time.Time { return time.Date(2026, 3, 14, 12, 4, 31, 0, time.UTC) }

// busy is snapshot n of a cluster in which events and decisions come and go, and the
// place of prefill is told late.
func busy(n int) cluster.Snapshot {
	s := cluster.Snapshot{Time: start().Add(time.Duration(n) * time.Second), Cluster: "lab", Events: []cluster.KVEvent{}, Decisions: []cluster.RouterDecision{}}
	s.Workers = []cluster.Worker{{WorkerStatus: cluster.WorkerStatus{Name: "worker-1", Stats: cluster.WorkerStats{StepsTotal: uint64(n)}}}}
	for i := n * 7; i >= 0 && len(s.Events) < 200; i-- {
		s.Events = append(s.Events, cluster.KVEvent{WorkerID: 1 << 63, EventID: uint64(i), Worker: "worker-1", Kind: cluster.KVRemoved, Removed: []uint64{1<<64 - 1}})
	}
	for i := n * 3; i >= 0 && len(s.Decisions) < 200; i-- {
		d := cluster.RouterDecision{RequestID: fmt.Sprint("r-", i), Time: start(), Phase: cluster.RoleDecode, Candidates: []cluster.RouteCandidate{{Worker: "worker-1", Cost: 0.1}}}
		if i < n*3-4 {
			d.Prefill = "worker-2"
		}
		s.Decisions = append(s.Decisions, d)
	}
	return s
}

func text(t *testing.T, s cluster.Snapshot) string {
	t.Helper()
	body, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// feed is a source that the test feeds.
type feed struct {
	client.Source
	ch     chan cluster.Snapshot
	closed bool
}

func (f *feed) Snapshots() <-chan cluster.Snapshot { return f.ch }
func (f *feed) Close() error                       { f.closed = true; return nil }

// record writes n busy snapshots through a Recorder and returns the file's name.
func record(t *testing.T, n int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "run.jsonl")
	f := &feed{ch: make(chan cluster.Snapshot)}
	r, err := Record(f, name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		f.ch <- busy(i)
		if got := <-r.Snapshots(); !got.Time.Equal(busy(i).Time) || len(got.Notices) > 0 {
			t.Fatalf("snapshot %d came as %v with %q", i, got.Time, got.Notices)
		}
	}
	if err := r.Close(); err != nil || !f.closed {
		t.Fatalf("close: %v, source closed %t", err, f.closed)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	return name
}

func open(t *testing.T, name string) *File {
	t.Helper()
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestARecordingGivesBackEverySnapshot(t *testing.T) {
	patience.OneGoroutine(t)
	const n = 2*keyframe + 5
	f := open(t, record(t, n))
	if f.Len() != n || f.Cut != 0 {
		t.Fatalf("%d snapshots, cut %d; want %d", f.Len(), f.Cut, n)
	}
	whole := 0
	var now cluster.Snapshot
	for i := range n {
		var err error
		if i%7 == 0 { // as when winding, else as when playing
			now, err = f.Snapshot(i)
		} else {
			now, err = f.next(now, i)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, want := text(t, now), text(t, busy(i)); got != want {
			t.Fatalf("snapshot %d is %s\nwant %s", i, got, want)
		}
		if f.lines[i].whole {
			whole++
		}
	}
	if whole != 3 {
		t.Errorf("%d complete lines among %d, want every %d-th", whole, n, keyframe)
	}
	if last := f.lines[n-2]; last.length*4 > f.lines[2*keyframe].length {
		t.Errorf("a line that leans on another takes %d bytes, a complete one %d", last.length, f.lines[2*keyframe].length)
	}
}

// What cannot be put together again from a line and the one before is written whole.
func TestUnusualChangesAreWrittenWhole(t *testing.T) {
	prev, next := busy(40), busy(41)
	next.Events = next.Events[5:] // as after a restart of whatever keeps them
	if _, ok := shorten(prev, next); ok {
		t.Error("events that left at the front are not missed")
	}
	next = busy(41)
	next.Decisions[10] = next.Decisions[20]
	if _, ok := shorten(prev, next); ok {
		t.Error("a decision that stands twice is not missed")
	}
	if _, ok := shorten(prev, busy(41)); !ok {
		t.Error("usual changes are written whole")
	}
}

func TestRecordKeepsWhatIsThere(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.jsonl")
	if err := os.WriteFile(name, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Record(&feed{}, name); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), name) {
		t.Errorf("recording over a file: %v", err)
	}
	if got, _ := os.ReadFile(name); string(got) != "precious" {
		t.Errorf("the file holds %q", got)
	}
}

// A full disk ends the recording, not the dashboard, and nobody misses it.
func TestSnapshotsGoOnWhenRecordingCannot(t *testing.T) {
	f := &feed{ch: make(chan cluster.Snapshot)}
	r, err := Record(f, filepath.Join(t.TempDir(), "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	r.file.Close()
	for i := range 3 {
		f.ch <- busy(i)
		got := <-r.Snapshots()
		if len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "run.jsonl stopped: write") {
			t.Errorf("notices %q", got.Notices)
		}
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("close: %v", err)
	}
}

func TestDamagedRecordingsAreRefused(t *testing.T) {
	good, err := os.ReadFile(record(t, 4))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(good)), "\n")
	lines[3] += "\n"
	join := func(l ...string) string { return strings.Join(l, "") }
	late := strings.Replace(lines[1], `"time":"2026`, `"time":"2025`, 1)
	tests := []struct{ name, file, want string }{
		{"empty", "", "no snapshot in it"},
		{"another kind of file", "NAME ROLE\nworker-1 decode\n", "line 1: not a recording"},
		{"another kind of JSON", "{\"a\":1}\n", "line 1: not a recording, or a damaged one: no time in it"},
		{"a wrong type", join(lines[0], strings.Replace(lines[1], `"lab"`, "7", 1), lines[2]), "line 2: not a recording"},
		{"a bit", join(lines[0], lines[1], "\x00"+lines[2][1:], lines[3]), "line 3: not a recording"},
		{"an empty line", join(lines[0], "\n", lines[1]), "line 2: not a recording"},
		{"lines glued together", join(lines[0], strings.TrimSpace(lines[1]), lines[2]), "line 2: not a recording"},
		{"without its beginning", join(lines[1:]...), "line 1: not a recording, or a damaged one: begins in the middle"},
		{"out of order", join(lines[0], late), "line 2: not a recording, or a damaged one: is older"},
		{"cut in the only line", lines[0][:50], "line 1: not a recording"},
		{"a line without end", lines[0] + strings.Repeat(" ", 1<<20+1), "line 2: not a recording, or a damaged one: longer than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := read(strings.NewReader(tt.file), strings.NewReader(tt.file), 1<<20)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	long := lines[0] + strings.Repeat(lines[1], maxSince+1)
	if _, err := read(strings.NewReader(long), strings.NewReader(long), 1<<20); err == nil || !strings.Contains(err.Error(), "no complete snapshot among 600 lines") {
		t.Errorf("a recording without complete lines: %v", err)
	}
}

func TestALineThatWasNotFinishedIsLeftOut(t *testing.T) {
	good, err := os.ReadFile(record(t, 4))
	if err != nil {
		t.Fatal(err)
	}
	cut := string(good[:len(good)-30])
	f, err := read(strings.NewReader(cut), strings.NewReader(cut), 1<<20)
	if err != nil || f.Len() != 3 || f.Cut != 4 {
		t.Fatalf("%+v, %v", f, err)
	}
	// Only the end of that line may be missing.
	if f, err := read(strings.NewReader(string(good[:len(good)-1])), bytes.NewReader(good), 1<<20); err != nil || f.Len() != 4 || f.Cut != 0 {
		t.Errorf("without the last line break: %+v, %v", f, err)
	}
}

// Samples that -o json printed are complete lines.
func TestSamplesAreARecording(t *testing.T) {
	var b bytes.Buffer
	for i := range 3 {
		b.WriteString(text(t, busy(i)) + "\n")
	}
	f, err := read(bytes.NewReader(b.Bytes()), bytes.NewReader(b.Bytes()), 1<<20)
	if err != nil || f.Len() != 3 {
		t.Fatal(err)
	}
	if s, err := f.Snapshot(2); err != nil || text(t, s) != text(t, busy(2)) {
		t.Errorf("%v, %v", s, err)
	}
}

func TestAFileThatChangesUnderThePlayer(t *testing.T) {
	name := record(t, 3)
	f := open(t, name)
	if err := os.WriteFile(name, []byte(strings.Repeat("x", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Snapshot(1); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v", err)
	}
	p := f.Play(0, 1)
	defer p.Close()
	if s := <-p.Snapshots(); len(s.Notices) != 1 || !strings.Contains(s.Notices[0], "replay: line 1") {
		t.Errorf("notices %q", s.Notices)
	}
}

// playingFile is a recording in memory with snapshots at the given seconds.
func playingFile(t *testing.T, seconds ...int) *File {
	t.Helper()
	var b bytes.Buffer
	for _, n := range seconds {
		b.WriteString(text(t, busy(n)) + "\n")
	}
	f, err := read(bytes.NewReader(b.Bytes()), bytes.NewReader(b.Bytes()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPlayingKeepsTheTimeOfTheRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playingFile(t, 0, 1, 2, 12, 13).Play(0, 4)
		defer p.Close()
		begin := time.Now()
		for _, want := range []time.Duration{0, 1, 2, 12, 13} {
			s := <-p.Snapshots()
			if got := s.Time.Sub(start()); got != want*time.Second || time.Since(begin) != want*time.Second/4 {
				t.Errorf("second %v came after %v, want %v", got, time.Since(begin), want*time.Second/4)
			}
		}
		select {
		case s, ok := <-p.Snapshots():
			t.Errorf("after the end came %v %t", s.Time, ok)
		case <-time.After(time.Hour):
		}
	})
}

func TestWinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playingFile(t, 0, 1, 2, 3, 4, 5, 60, 61).Play(2, 1)
		defer p.Close()
		next := func(what string, want int) {
			t.Helper()
			if s := <-p.Snapshots(); s.Time.Sub(start()) != time.Duration(want)*time.Second {
				t.Errorf("%s: second %v, want %d", what, s.Time.Sub(start()), want)
			}
		}
		still := func(what string) {
			t.Helper()
			select {
			case s := <-p.Snapshots():
				t.Errorf("%s: %v came", what, s.Time)
			case <-time.After(time.Hour):
			}
		}
		next("start", 2)
		p.Hold(true)
		synctest.Wait()
		still("held")
		p.Step(1)
		next("step", 3)
		p.Step(-2)
		next("step back", 1)
		still("steps hold")
		p.Seek(3 * time.Second)
		next("seek", 4)
		p.Seek(-time.Minute)
		next("seek before the start", 0)
		p.Seek(5 * time.Second)
		next("seek", 5)
		p.Seek(10 * time.Second)
		next("seek into a gap", 60)
		p.Seek(time.Hour)
		next("seek past the end", 61)
		p.Hold(false)
		still("at the end")
		p.Seek(-2 * time.Second)
		next("seek back", 5)
		p.SetSpeed(0)
		p.SetSpeed(55)
		begin := time.Now()
		next("faster", 60)
		if d := time.Since(begin); d != time.Second {
			t.Errorf("55 seconds took %v at 55 times the speed", d)
		}
		if err := p.Act(context.Background(), client.Action{}); !errors.Is(err, ErrRecording) || p.ReadOnly() == "" {
			t.Errorf("act: %v, read-only %q", err, p.ReadOnly())
		}
	})
}

// A slow screen gets the newest snapshot, and old ones do not pile up.
func TestASlowReaderSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playingFile(t, 0, 1, 2, 3).Play(0, 1)
		defer p.Close()
		time.Sleep(time.Minute)
		if s := <-p.Snapshots(); s.Time.Sub(start()) != 3*time.Second {
			t.Errorf("got second %v", s.Time.Sub(start()))
		}
	})
}

func FuzzRead(f *testing.F) {
	const at = "{\"time\":\"2026-03-14T12:04:31Z\""
	f.Add([]byte(at + ",\"router_decisions\":[{\"request_id\":\"a\"}]}\n" + at + ",\"since_previous\":true,\"router_decisions\":[{\"request_id\":\"a\",\"prefill\":\"b\"}]}\n" + at))
	f.Add([]byte(at + ",\"workers\":null,\"kv_events\":[{}]}\n" + at + ",\"since_previous\":true}\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		rec, err := read(bytes.NewReader(content), bytes.NewReader(content), 1<<20)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		first, last := rec.Span()
		if last.Before(first) {
			t.Fatalf("from %v to %v", first, last)
		}
		for i := range rec.Len() {
			s, err := rec.Snapshot(i)
			if err != nil {
				t.Fatalf("snapshot %d of a checked recording: %v", i, err)
			}
			if n := rec.At(s.Time.Sub(first)); rec.lines[n].at.Before(s.Time) {
				t.Fatalf("at %v there is snapshot %d of %v", s.Time, n, rec.lines[n].at)
			}
		}
	})
}
