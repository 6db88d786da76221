package tui

import (
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
)

var _ client.Playback = (*fakeSource)(nil)

// newReplay is a screen in the middle of a recording of five minutes.
func newReplay(t *testing.T) *screen {
	t.Helper()
	return newScreen(t, labSnapshot(), 120, 30, Options{Replay: &Replay{First: noon().Add(-time.Minute), Last: noon().Add(4 * time.Minute), Speed: 4}})
}

func TestAReplaySaysWhereItIs(t *testing.T) {
	sc := newReplay(t)
	sc.has("REPLAY x4 1:00 of 5:00", "12:04:31 UTC", "9.2s")
	sc.lacks("LIVE")
	sc.tick(500 * time.Millisecond) // two seconds of the recording
	sc.has("REPLAY x4 1:02 of 5:00", "12:04:33 UTC", "7.2s")
	sc.tick(time.Minute)
	sc.lacks("STALE") // silence in a recording is no fault
	sc = newReplay(t)
	sc.press("p")
	sc.tick(time.Minute)
	sc.has("REPLAY held 1:00 of 5:00", "9.2s")
	s := labSnapshot()
	s.Time = noon().Add(4 * time.Minute)
	sc.press("p")
	sc.send(snapshotMsg{s, sc.m.feed.now})
	sc.tick(time.Minute)
	sc.has("REPLAY ended 5:00 of 5:00", "9.2s")
	s.Fresh.EtcdOK, s.Fresh.StaleSince = false, s.Time.Add(-7*time.Second)
	sc.send(snapshotMsg{s, sc.m.feed.now})
	sc.has("REPLAY ended 5:00 of 5:00 STALE 7s")
}

func TestKeysWindAReplay(t *testing.T) {
	sc := newReplay(t)
	sc.press("[", "]", "{", "}", ".", "p", ",", "+", "-", "-")
	sc.press(":", "type:seek -90s", "enter", ":", "type:speed 2.5", "enter")
	want := []string{"seek -10s", "seek 10s", "seek -1m0s", "seek 1m0s", "step 1", "hold false", "step -1", "speed 8", "speed 4", "speed 2", "seek -1m30s", "speed 2.5"}
	if !slices.Equal(sc.src.wound, want) {
		t.Errorf("keys led to %q, want %q", sc.src.wound, want)
	}
	sc.has("REPLAY held") // by the steps
	sc.press("p")
	sc.has("REPLAY x2.5")
	for range 20 {
		sc.press("+")
	}
	sc.has("+: x64 is the last step; :speed takes any")
	for _, tt := range []struct{ line, want string }{
		{"seek", "wrong arguments: :seek <duration>"},
		{"seek far", `"far" is not a duration`},
		{"speed 0", `"0" is not a number above 0, up to 1000`},
		{"speed NaN", `"NaN" is not a number`},
		{"speed 1001", "up to 1000"},
		{"interval 2s", "a recording has its own interval"},
	} {
		sc.press(":", "type:"+tt.line, "enter")
		sc.has(tt.want)
	}
	sc = newScreen(t, labSnapshot(), 160, 60, Options{Replay: &Replay{}})
	sc.press("?")
	sc.has("Replay", "a minute back and on")
}

func TestLiveScreensCannotBeWound(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 100, 30, Options{Recording: "run.jsonl"})
	sc.has("REC run.jsonl", "LIVE")
	for _, k := range []string{"[", "]", "{", "}", ",", "."} {
		sc.press(k)
		sc.has(": only a replay can be wound")
		sc.press("1")
	}
	if len(sc.src.wound) > 0 {
		t.Errorf("the source was wound: %q", sc.src.wound)
	}
}
