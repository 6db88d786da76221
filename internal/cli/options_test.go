package cli

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/drain"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/listing"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/set"
	"github.com/dynctl/dynctl/internal/cli/term"
)

// optionsOf are the options that a command line completes; nothing of it runs.
func optionsOf(t *testing.T, line string) (command.Runner, int) {
	t.Helper()
	env := session.Env{Environ: []string{"HOME=/nowhere", "DYNCTL_STATE_DIR=" + t.TempDir()}, Streams: term.Streams{Out: &strings.Builder{}, Err: &strings.Builder{}}}
	var got command.Runner
	code := run(t.Context(), strings.Fields(line), env, func(_ context.Context, o command.Runner) error {
		got = o
		return nil
	})
	return got, code
}

// Flags and arguments become options, before anything is dialed.
func TestCommandLinesCompleteOptions(t *testing.T) {
	o, _ := optionsOf(t, "drain worker-3 node/host-2 --deadline 90s --replace --no-wait")
	d := o.(*drain.Options)
	if want := []fleet.Target{{Name: "worker-3"}, {Name: "host-2", Node: true}}; !reflect.DeepEqual(d.Targets, want) || d.Deadline != 90*time.Second || !d.Replace || !d.NoWait || d.Force || d.Progress != "auto" {
		t.Errorf("drain: %+v", d)
	}
	// Targets are read in one way; uncordon names nodes alone.
	o, _ = optionsOf(t, "restart worker-3")
	if got := o.(*drain.RestartOptions).Targets; !reflect.DeepEqual(got, []fleet.Target{{Name: "worker-3"}}) {
		t.Errorf("restart: %+v", got)
	}
	for _, line := range []string{"uncordon host-2", "uncordon node/host-2", "resume node/host-2"} {
		o, _ = optionsOf(t, line)
		if got := o.(*drain.ResumeOptions).Targets; !reflect.DeepEqual(got, []fleet.Target{{Name: "host-2", Node: true}}) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	// One verb, three things to do.
	o, _ = optionsOf(t, "set disagg.strategy")
	if s, ok := o.(*set.ShowOptions); !ok || s.Names[0] != "disagg.strategy" {
		t.Errorf("set of a name: %+v", o)
	}
	o, _ = optionsOf(t, "set worker-3 role=prefill --dry-run")
	if s, ok := o.(*set.RoleOptions); !ok || !s.DryRun {
		t.Errorf("set of a role: %+v", o)
	}
	o, _ = optionsOf(t, "set router.policy=round-robin --unset disagg.strategy")
	if s, ok := o.(*set.Options); !ok || s.Set[0] != "router.policy=round-robin" || s.Unset[0] != "disagg.strategy" {
		t.Errorf("set: %+v", o)
	}
	o, _ = optionsOf(t, "ps --nodes -w")
	if l := o.(*listing.Options); !l.Watch || l.Kind == nil {
		t.Errorf("ps: %+v", l)
	}
}

// A command that changes the cluster is refused before its options are used, but for a plan.
func TestReadOnlyComesFirst(t *testing.T) {
	for line, want := range map[string]int{
		"drain worker-3 --read-only": exit.Failed, "drain worker-3 --read-only --dry-run": exit.OK, "uncordon host-2 --read-only": exit.Failed, "ps --read-only": exit.OK,
	} {
		if o, code := optionsOf(t, line); code != want || (o == nil) != (want != exit.OK) {
			t.Errorf("%s: exit %d, %+v", line, code, o)
		}
	}
}
