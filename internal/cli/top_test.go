package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/cli/top"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui"
)

func TestTopPrints(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2})
	w.up(1, 1)
	fast := []string{"--interval", "100ms"}
	run := func(args ...string) string {
		t.Helper()
		return w.ok(append(append([]string{"top"}, fast...), args...)...).stdout
	}
	// Without a terminal it prints one sample.
	clitest.Has(t, "no terminal", run(), "# workers\n", "worker-2\tdecode\tcpu0 2c\tready\t2\t34\t4096", "# router\n")
	if got := run("--view", "leases"); !strings.HasPrefix(got, "OWNER\tLEASE ID") || strings.Contains(got, "#") {
		t.Errorf("one pane:\n%s", got)
	}
	if a, b := run("--view", "3"), run("--view", "queue"); a[:20] != b[:20] {
		t.Errorf("panes by number:\n%s\n%s", a, b)
	}
	var s cluster.Snapshot
	out := run("--once", "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	if s.Cluster != "lab" || len(s.Workers) != 2 || len(s.Nodes) != 1 || s.KVEventRate == nil {
		t.Errorf("a sample without rates:\n%s", out)
	}
	lines := strings.Split(strings.TrimSpace(run("--samples", "3", "-o", "json")), "\n")
	if len(lines) != 3 {
		t.Errorf("%d documents, want 3 of one line each", len(lines))
	}
	clitest.Has(t, "yaml", run("--samples", "2", "-o", "yaml"), "---\ntime:", "cluster: lab\n")
	records, err := csv.NewReader(strings.NewReader(run("--samples", "2", "-o", "csv"))).ReadAll()
	if err != nil || len(records) != 5 || records[0][0] != "TIME" || records[1][1] != "worker-1" {
		t.Errorf("csv: %q %v", records, err)
	}
	clitest.Has(t, "table of two", run("--samples", "2", "--view", "workers"), "# sample 1 at 20", "# sample 2 at 20")
	screen := run("--size", "80x24")
	if n := strings.Count(screen, "\n"); n != 24 || !strings.Contains(screen, "worker-2") || strings.Contains(screen, "\x1b") {
		t.Errorf("screen of %d lines:\n%s", n, screen)
	}
	// The configured format counts where it makes sense.
	r := w.with(t.Context(), options{env: []string{"DYNCTL_OUTPUT=json"}}, "top", "--interval", "100ms")
	if !strings.HasPrefix(r.stdout, "{") {
		t.Errorf("DYNCTL_OUTPUT=json: %s", r.stdout)
	}
	r = w.with(t.Context(), options{tty: true}, "top", "--once", "--interval", "100ms", "--view", "workers")
	clitest.Has(t, "a terminal", r.stdout, "NAME      ROLE", "● ready")
}

// What --record keeps, --replay shows: without a cluster, as it was.
func TestTopRecordsAndReplays(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{Sequences: 2})
	w.up(1, 1)
	file := filepath.Join(t.TempDir(), "run.jsonl")
	live := w.ok("top", "--record", file, "--samples", "4", "--interval", "100ms", "-o", "json").stdout
	r := w.run("top", "--record", file, "--once")
	if r.code != exit.Failed || !strings.Contains(r.stderr, "cannot record cluster lab: record: open "+file+": file exists") {
		t.Errorf("recording over a recording: %+v", r)
	}

	away := newWorld(t) // nothing runs there
	replay := func(args ...string) string {
		t.Helper()
		return away.ok(append([]string{"top", "--replay", file}, args...)...).stdout
	}
	played := replay("--samples", "100", "-o", "json")
	for i, l := range strings.Split(strings.TrimSpace(live), "\n") {
		if !strings.Contains(played, l+"\n") {
			t.Errorf("sample %d is not in the recording:\n%s\namong\n%s", i+1, l, played)
		}
	}
	lines := strings.Split(strings.TrimSpace(played), "\n")
	var first, second cluster.Snapshot
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &first), json.Unmarshal([]byte(lines[1]), &second)); err != nil {
		t.Fatal(err)
	}
	after := second.Time.Sub(first.Time).String()
	if got := replay("--at", after, "--samples", "1", "-o", "json"); !strings.Contains(got, first.Cluster) || strings.Contains(lines[0], strings.TrimSpace(got)) {
		t.Errorf("--at %s shows the first snapshot:\n%s", after, got)
	}
	clitest.Has(t, "a table", replay("--once", "--view", "workers"), "worker-2\tdecode\tcpu0 2c\tready")
	clitest.Has(t, "a screen", replay("--size", "100x30"), "REPLAY x1", "cluster lab")

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(text, want string, code int) {
		t.Helper()
		name := filepath.Join(t.TempDir(), "run.jsonl")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := away.run("top", "--replay", name, "--once"); r.code != code || !strings.Contains(r.stderr, want) {
			t.Errorf("exit %d: %s; want %q", r.code, r.stderr, want)
		}
	}
	damage("x"+string(text), "line 1: not a recording", exit.Failed)
	damage(string(text)+"{}\n", "not a recording, or a damaged one: no time in it", exit.Failed)
	damage(string(text[:len(text)-9]), "ends in the middle of line 5, which is left out", 0)

	for _, tt := range []struct{ args, want string }{
		{"--replay x --record y", "contradict"},
		{"--speed 2", "belong to --replay"},
		{"--at 2s", "belong to --replay"},
		{"--replay x --speed 0", "--speed: give a number above 0, up to 1000"},
		{"--replay x --speed 1001", "--speed: give a number"},
		{"--replay x --at -1s", "--at: give a duration"},
	} {
		if r := away.run(append([]string{"top"}, strings.Fields(tt.args)...)...); r.code != exit.Usage || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: %+v", tt.args, r)
		}
	}
	if r := away.run("top", "--replay", file+".gone"); r.code != exit.Failed || !strings.Contains(r.stderr, "no such file") {
		t.Errorf("no such recording: %+v", r)
	}
}

func TestTopIsInterrupted(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := w.with(ctx, options{}, "top", "--samples", "1000"); r.code != exit.Interrupted {
		t.Errorf("%+v", r)
	}
}

// On a terminal the dashboard runs with the settings of the command line.
func TestTopOnATerminal(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	var got tui.Options
	var readOnly string
	end := errors.New("the terminal broke")
	var vars []string
	top := func(tty bool, args ...string) (int, string) {
		var out, errs bytes.Buffer
		env := session.Env{Streams: term.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, InTTY: tty, OutTTY: tty}, Environ: append([]string{"TERM=xterm"}, append(w.env, vars...)...), Dir: w.state}
		do := func(ctx context.Context, o command.Runner) error {
			o.(*top.Options).Dashboard = func(_ context.Context, s client.Source, o tui.Options) error {
				got, readOnly = o, s.ReadOnly()
				return end
			}
			return o.Run(ctx)
		}
		return run(t.Context(), args, env, do), errs.String()
	}
	code, stderr := top(true, "top", "--theme", "light", "--ascii", "--view", "queue", "--interval", "3s", "--color", "never", "--read-only")
	if code != exit.Failed || !strings.Contains(stderr, "cannot show cluster lab: the terminal broke") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if got.Theme != "light" || !got.ASCII || got.View != "queue" || got.Interval != 3*time.Second || got.Color != tui.ColorNever || !got.ReadOnly {
		t.Errorf("options %+v", got)
	}
	if readOnly != "read-only is set by --read-only" {
		t.Errorf("source is read-only: %q", readOnly)
	}
	got = tui.Options{}
	if code, _ := top(true, "top", "--once", "--interval", "100ms"); code != 0 || got.Interval != 0 {
		t.Errorf("--once on a terminal: exit %d, dashboard %+v", code, got)
	}
	// A terminal that cannot draw it gets a sample, and is told so.
	for _, v := range []string{"TERM=dumb", "TERM="} {
		vars = []string{v}
		code, stderr = top(true, "top", "--interval", "100ms")
		if code != 0 || got.Interval != 0 || !strings.Contains(stderr, "cannot draw the dashboard; printing a sample") {
			t.Errorf("%s: exit %d, dashboard %+v: %s", v, code, got, stderr)
		}
	}
	// Without UTF-8 it draws with ASCII characters.
	vars = []string{"LC_ALL=C"}
	if code, _ := top(true, "top"); code != exit.Failed || !got.ASCII {
		t.Errorf("LC_ALL=C: exit %d, dashboard %+v", code, got)
	}
}
