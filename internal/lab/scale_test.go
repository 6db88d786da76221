package lab

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/lab/bench"
)

func TestScaleUsage(t *testing.T) {
	t.Setenv("DYNAMOD_STATE_DIR", t.TempDir())
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"more"}, `unknown command "more"`},
		{[]string{"-o", "yaml"}, `--output: "yaml" is not markdown or json`},
		{[]string{"--axes", "racks"}, `axis "racks" is not one of workers, frontends, nodes`},
		{[]string{"--workers", "0"}, "workers are from 1 to 5000"},
		{[]string{"--nodes", "2,65"}, "nodes are from 1 to 64"},
		{[]string{"--workers", "many"}, `invalid argument "many"`},
		{[]string{"--processes", "-1"}, "processes are from 1 to 64"},
		{[]string{"--idle", "-1s"}, "times are not negative"},
	} {
		cmd := command(new(bytes.Buffer), new(bytes.Buffer))
		cmd.SetArgs(append([]string{"scale"}, tc.args...))
		err := cmd.Execute()
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want a usage error with %q", tc.args, err, tc.want)
		}
	}
}

// The line in a report has every flag that was given.
func TestScaleCommandLine(t *testing.T) {
	given := []string{
		"--quick=true", "--axes", "workers,nodes", "--workers", "2,8", "--frontends", "1", "--nodes", "3", "--fixed-workers", "5", "--processes", "6",
		"--kv-blocks", "7", "--idle", "8s", "--timeout", "9s", "--rounds", "10", "--output", "json", "--write", "docs",
	}
	cmd := scaleCommand(new(bytes.Buffer), new(bytes.Buffer))
	if err := cmd.ParseFlags(given); err != nil {
		t.Fatal(err)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Changed && f.Name != "help" {
			t.Errorf("--%s is not tried here", f.Name)
		}
	})
	if got, want := scaleLine(cmd), "dynlab scale "+strings.Join(given, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := scaleLine(scaleCommand(nil, nil)); got != "dynlab scale" {
		t.Errorf("without flags: %s", got)
	}
}

// A report goes with its plots into the folder, and refers to them there.
func TestScaleShow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scale")
	panel := bench.Panel{Title: "p", Points: []bench.PanelPoint{{At: 1, Figure: bench.Figure{Median: 1, Low: 1, High: 1, Repetitions: 1}}}}
	r := &bench.Report{Run: bench.RunInfo{Plots: "."}, Sections: []bench.Section{{Name: "scale", Title: "Scale", Plots: []bench.Plot{{Name: "workers", Title: "W", Panels: []bench.Panel{panel}}}}}}
	for _, output := range []string{"markdown", "json"} {
		if err := (scaleFlags{output: output, write: dir}).show(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"report.json", "report.md", "workers.svg"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil || !strings.Contains(string(text), "![W](./workers.svg)") {
		t.Errorf("%v\n%s", err, text)
	}
	var out bytes.Buffer
	if err := (scaleFlags{output: "json"}).show(r, &out); err != nil || !strings.Contains(out.String(), `"panels"`) {
		t.Errorf("%v\n%s", err, out.String())
	}
}
