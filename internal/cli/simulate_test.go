package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
)

// labbed runs dynctl in dir, where a script plays dynlab; then is called when that has written ready to standard error.
func labbed(ctx context.Context, dir string, then func(), args ...string) result {
	var out bytes.Buffer
	stderr := &watchWriter{want: "ready", then: then}
	env := session.Env{
		Streams: term.Streams{In: strings.NewReader(""), Out: &out, Err: stderr}, Environ: []string{"HOME=/nowhere", "PATH=/usr/bin:/bin"}, Dir: dir,
		Executable: func() (string, error) { return filepath.Join(dir, "dynctl"), nil },
	}
	code := Main(ctx, args, env)
	return result{out.String(), stderr.text(), code}
}

func playDynlab(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dynlab"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// dynlab gets the flags in the same directory, its streams are dynctl's, and so is its exit code.
func TestSimulateRunsDynlab(t *testing.T) {
	dir := playDynlab(t, `printf '[%s]' "$@"; pwd; echo "dynlab: no profile" >&2; exit 2`)
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := labbed(t.Context(), dir, nil, "simulate", "-f", "a b.yaml", "--rate", "2", "--planner")
	if r.code != exit.Usage || r.stdout != "[simulate][--file=a b.yaml][--rate=2][--planner=true]"+at+"\n" || r.stderr != "dynlab: no profile\n" {
		t.Errorf("%+v", r)
	}
	r = labbed(t.Context(), dir, nil, "simulate", "-o", "json")
	if r.stdout != "[simulate][--json]"+at+"\n" {
		t.Errorf("%+v", r)
	}
	r = labbed(t.Context(), dir, nil, "simulate", "-o", "yaml")
	if r.code != exit.Usage || r.stdout != "" || !strings.Contains(r.stderr, "as a table or as JSON") {
		t.Errorf("%+v", r)
	}
}

func TestSimulateWithoutDynlab(t *testing.T) {
	r := labbed(t.Context(), t.TempDir(), nil, "simulate")
	if r.code != exit.Failed {
		t.Errorf("%+v", r)
	}
	clitest.Has(t, "stderr", r.stderr, "dynctl: cannot simulate: dynlab not found: neither in ", "one release", "try: make build")
}

// The signal that ends dynctl reaches dynlab.
func TestSimulateForwardsSignals(t *testing.T) {
	for cause, want := range map[error]string{session.ErrTerminated: "TERM", session.ErrInterrupt: "INT"} {
		dir := playDynlab(t, `for s in INT TERM; do trap "echo got $s; exit 1" $s; done; echo ready >&2; while :; do sleep 0.05; done`)
		ctx, cancel := context.WithCancelCause(t.Context())
		r := labbed(ctx, dir, func() { cancel(cause) }, "simulate")
		if r.code != exit.Interrupted || r.stdout != "got "+want+"\n" {
			t.Errorf("%v: %+v", cause, r)
		}
	}
}

// dynctl has the flags that dynlab has, and no other.
func TestSharedFlags(t *testing.T) {
	root := root(command.New(session.Env{}))
	for name, shared := range map[string]labflags.Shared{"simulate": &labflags.Simulate{}, "plan": &labflags.Size{}} {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if own := ownFlags(cmd); !slices.Equal(own, slices.Sorted(slices.Values(labflags.Names(shared)))) {
			t.Errorf("dynctl %s has %v", name, own)
		}
	}
}

func ownFlags(cmd *cobra.Command) (names []string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
	slices.Sort(names)
	return names
}
