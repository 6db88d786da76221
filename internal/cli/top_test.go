package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
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
	has(t, "no terminal", run(), "# workers\n", "worker-2\tdecode\tcpu0 2c\tready\t2\t34\t4096", "# router\n")
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
	has(t, "yaml", run("--samples", "2", "-o", "yaml"), "---\ntime:", "cluster: lab\n")
	records, err := csv.NewReader(strings.NewReader(run("--samples", "2", "-o", "csv"))).ReadAll()
	if err != nil || len(records) != 5 || records[0][0] != "TIME" || records[1][1] != "worker-1" {
		t.Errorf("csv: %q %v", records, err)
	}
	has(t, "table of two", run("--samples", "2", "--view", "workers"), "# sample 1 at 20", "# sample 2 at 20")
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
	has(t, "a terminal", r.stdout, "NAME      ROLE", "● ready")
}

func TestTopIsInterrupted(t *testing.T) {
	w := newWorld(t)
	w.agent(fakeConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if r := w.with(ctx, options{}, "top", "--samples", "1000"); r.code != exitInterrupted {
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
	run := func(tty bool, args ...string) (int, string) {
		var out, errs bytes.Buffer
		f := newFactory(Env{Streams: term.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, InTTY: tty, OutTTY: tty}, Environ: w.env, Dir: w.state})
		f.dashboard = func(_ context.Context, s client.Source, o tui.Options) error {
			got, readOnly = o, s.ReadOnly()
			return end
		}
		root := f.root()
		root.SetArgs(args)
		cmd, err := root.ExecuteContextC(t.Context())
		if err != nil {
			f.report(cmd, err)
		}
		return codeOf(err), errs.String()
	}
	code, stderr := run(true, "top", "--theme", "light", "--ascii", "--view", "queue", "--interval", "3s", "--color", "never", "--read-only")
	if code != exitFailed || !strings.Contains(stderr, "cannot show cluster lab: the terminal broke") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if got.Theme != "light" || !got.ASCII || got.View != "queue" || got.Interval != 3*time.Second || got.Color != tui.ColorNever || !got.ReadOnly {
		t.Errorf("options %+v", got)
	}
	if readOnly != "read-only is set by --read-only" {
		t.Errorf("source is read-only: %q", readOnly)
	}
	got = tui.Options{}
	if code, _ := run(true, "top", "--once", "--interval", "100ms"); code != 0 || got.Interval != 0 {
		t.Errorf("--once on a terminal: exit %d, dashboard %+v", code, got)
	}
}
