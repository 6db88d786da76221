package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// The source is asked about a worker only while its screen is open.
func TestWorkersAreAskedWhileTheirScreenIsOpen(t *testing.T) {
	sc := newScreen(t, labSnapshot(), 100, 30, Options{})
	sc.press("j", "enter", "p", "p", "esc", "j", "enter", "1")
	if want := []string{"worker-2", "", "worker-3", ""}; !slices.Equal(sc.src.looked, want) {
		t.Errorf("asked about %q, want %q", sc.src.looked, want)
	}
	sc = newScreen(t, labSnapshot(), 100, 30, Options{Worker: "worker-5"})
	if want := []string{"worker-5"}; !slices.Equal(sc.src.looked, want) || !strings.Contains(sc.m.View(), "› worker-5") {
		t.Errorf("asked about %q, want %q:\n%s", sc.src.looked, want, sc.m.View())
	}
}

// A screen never shows what another worker has in hand, and says why it shows nothing.
func TestActivityOfTheRightWorker(t *testing.T) {
	refused, idle := labSnapshot(), labSnapshot()
	refused.Activity = &cluster.Activity{Worker: "worker-4", Error: "no answer in 1s"}
	idle.Activity = &cluster.Activity{Worker: "worker-4"}
	replay := Options{Replay: &Replay{First: noon(), Last: noon().Add(time.Hour)}}
	for _, tt := range []struct {
		name, worker string
		snap         cluster.Snapshot
		opts         Options
		want         string
	}{
		{"known", "worker-4", labSnapshot(), Options{}, "r-8e77"},
		{"recorded", "worker-4", labSnapshot(), replay, "r-8e77"},
		{"not yet", "worker-5", labSnapshot(), Options{}, "asking worker-5…"},
		{"not recorded", "worker-5", labSnapshot(), replay, "not recorded"},
		{"refused", "worker-4", refused, Options{}, "worker-4 does not report them: no answer in 1s"},
		{"idle", "worker-4", idle, Options{}, "none at present"},
	} {
		tt.opts.Worker = tt.worker
		view := newScreen(t, tt.snap, 160, 50, tt.opts).m.View()
		if !strings.Contains(view, tt.want) || tt.want != "r-8e77" && strings.Contains(view, "r-8e77") {
			t.Errorf("%s: no %q in\n%s", tt.name, tt.want, view)
		}
	}
}
