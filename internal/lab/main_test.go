package lab

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/labflags"
	"github.com/dynctl/dynctl/internal/orphan"
)

// The test binary is dynlab when this is set.
const asDynlab = "TEST_AS_DYNLAB"

func TestMain(m *testing.M) {
	if os.Getenv(asDynlab) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// execute runs dynlab in a process, with an environment of its own.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = t.TempDir() // no configuration file is found by accident
	cmd.Env = []string{asDynlab + "=1", "HOME=" + cmd.Dir, "DYNAMOD_STATE_DIR=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("dynlab does not end\n%s", errs.String())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{nil, exitOK, "gpu-check", ""},
		{[]string{"--version"}, exitOK, "dynlab version ", ""},
		{[]string{"speed"}, exitUsage, "", `dynlab: unknown command "speed"`},
		{[]string{"simulate"}, exitUsage, "", "dynlab: name a --trace or a --rate"},
		{[]string{"simulate", "--rate", "1"}, exitUsage, "", "dynlab: name a --profile"},
		{[]string{"bench", "all", "--fast"}, exitUsage, "", "dynlab: unknown flag: --fast"},
	} {
		code, stdout, stderr := execute(t, c.args...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.HasPrefix(stderr, c.stderr) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", c.args, code, stdout, stderr)
		}
	}
}

// The commands that dynctl offers too have the flags that it passes on, and --json.
func TestSharedFlags(t *testing.T) {
	for name, shared := range map[string]labflags.Shared{"simulate": &labflags.Simulate{}, "size": &labflags.Size{}} {
		cmd, _, err := command(io.Discard, io.Discard).Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		var own []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { own = append(own, f.Name) })
		if want := append(labflags.Names(shared), "json"); !slices.Equal(own, slices.Sorted(slices.Values(want))) {
			t.Errorf("dynlab %s has %v", name, own)
		}
	}
}
