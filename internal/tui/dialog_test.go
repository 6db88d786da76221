package tui

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
)

func TestDrainAsksAndCancelIsTheDefault(t *testing.T) {
	tests := []struct {
		name  string
		keys  []string
		want  []client.Action
		shown string
	}{
		{"enter cancels", []string{"d", "enter"}, nil, "cancelled: drain worker-1"},
		{"esc cancels", []string{"d", "tab", "esc"}, nil, "cancelled: drain worker-1"},
		{"q cancels", []string{"d", "q"}, nil, "cancelled: drain worker-1"},
		{"there and back cancels", []string{"d", "tab", "left", "enter"}, nil, "cancelled: drain worker-1"},
		{"other keys do nothing", []string{"d", "y", "d"}, nil, "the question first"},
		{"drain", []string{"d", "tab", "enter"}, []client.Action{{Kind: client.ActDrain, Worker: "worker-1"}}, "drain worker-1: accepted"},
		{"drain by command", []string{":", "type:drain worker-5 5m", "enter", "right", "enter"}, []client.Action{{Kind: client.ActDrain, Worker: "worker-5", Deadline: 5 * time.Minute}}, "drain worker-5: accepted"},
		{"drain from the leases", []string{"2", "d", "tab", "enter"}, []client.Action{{Kind: client.ActDrain, Worker: "worker-6"}}, "drain worker-6: accepted"},
		{"drain from its screen", []string{"j", "enter", "d", "tab", "enter"}, []client.Action{{Kind: client.ActDrain, Worker: "worker-2"}}, "drain worker-2: accepted"},
		{"resume", []string{"G", "r", "tab", "enter"}, []client.Action{{Kind: client.ActResume, Worker: "worker-7"}}, "resume worker-7: accepted"},
		{"resume by command", []string{":", "type:resume worker-7", "enter", "tab", "enter"}, []client.Action{{Kind: client.ActResume, Worker: "worker-7"}}, "resume worker-7: accepted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := lab(t)
			if cmd := sc.press(tt.keys...); tt.want != nil {
				sc.run(cmd)
			}
			if got := sc.src.actions(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("actions %v, want %v", got, tt.want)
			}
			sc.has(tt.shown)
		})
	}
}

func TestDrainDialogNamesWhatIsAtStake(t *testing.T) {
	sc := lab(t)
	sc.press("j", "j", "j", "d")
	sc.has("Drain worker-4?", "running sequences 17", "waiting 2", "[ Cancel ]", "tab choose", "esc cancel", "▲ kv-high")
	sc.press("tab")
	sc.has("[ Drain worker-4 ]")
	// Figures move on while the question stands.
	s := labSnapshot()
	s.Workers[3].Stats.Running = 12
	sc.send(snapshotMsg{s, noon()})
	sc.has("running sequences 12")
	// A worker that is gone cannot be drained any more.
	s.Workers = slices.Delete(s.Workers, 3, 4)
	sc.send(snapshotMsg{s, noon()})
	sc.has(`no worker "worker-4" in cluster lab any more`)
	sc.press("enter")
	if got := sc.src.actions(); got != nil {
		t.Errorf("actions %v, want none", got)
	}

	s = labSnapshot()
	s.Workers = s.Workers[1:]
	sc = newScreen(t, s, 100, 30, Options{})
	sc.press("d")
	sc.has("the last serving prefill worker")

	sc = lab(t)
	sc.press("p")
	sc.tick(12 * time.Second)
	sc.press("d")
	sc.has("the screen is frozen: figures are 12s old")
}

func TestRefusedActionSaysWhy(t *testing.T) {
	sc := lab(t)
	sc.src.err = errRefused
	sc.run(sc.press("d", "tab", "enter"))
	sc.has("drain worker-1: etcd 127.0.0.1:2379: deadline exceeded after 3s")
	sc.src.readOnly = "a recording"
	sc.press("d")
	sc.has("d: read-only: a recording")
}

func TestCommandLineCompletes(t *testing.T) {
	tests := []struct{ in, want string }{
		{"dr", "drain "}, {"drain w", "drain worker-"}, {"drain worker-7", "drain worker-7"}, {"view ro", "view router"},
		{"sort l", "sort lease"}, {"x", "x"}, {"in", "in"}, {"ins", "inspect "},
	}
	for _, tt := range tests {
		sc := lab(t)
		sc.press(":", "type:"+tt.in, "tab")
		if got := sc.m.over.top().(*prompt).text; got != tt.want {
			t.Errorf("%q completes to %q, want %q", tt.in, got, tt.want)
		}
	}
	sc := lab(t)
	sc.press(":", "type:drain worker-1", "ctrl+w", "backspace")
	if got := sc.m.over.top().(*prompt).text; got != "drain" {
		t.Errorf("editing leaves %q", got)
	}
}
