package lab

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/lab/bench"
)

func TestBenchUsage(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no section", nil, "requires at least 1 arg"},
		{"unknown section", []string{"speed"}, `invalid argument "speed"`},
		{"unknown format", []string{"all", "-o", "yaml"}, `--output: "yaml" is not markdown or json`},
		{"no such model", []string{"engine", "--model", "/no/such/model"}, "--model: stat /no/such/model"},
		{"no such text", []string{"accuracy", "--text", "/no/such/text"}, "--text: stat /no/such/text"},
		{"unknown model of the cpu section", []string{"cpu", "--models", "gpt"}, `model "gpt" is not one of qwen3-0.6b`},
		{"unknown case", []string{"cpu", "--cases", "speed"}, `case "speed" does not begin with one of prefill`},
		{"no threads", []string{"cpu", "--threads", "0"}, "0 threads"},
		{"unknown flag", []string{"engine", "--fast"}, "unknown flag: --fast"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := command(new(bytes.Buffer), os.Stderr)
			cmd.SetArgs(append([]string{"bench"}, tc.args...))
			err := cmd.Execute()
			var usage usageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a usage error with %q", err, tc.want)
			}
		})
	}
}

func TestBenchHelp(t *testing.T) {
	var out bytes.Buffer
	cmd := command(&out, os.Stderr)
	cmd.SetArgs([]string{"bench", "--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"{all | engine | path | nixl | plane | disagg | images | cpu | router | accuracy}", "--text", "--models", "--formats", "--cases", "--threads", "--quick", "--write", "--model"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestChosenSections(t *testing.T) {
	for _, tc := range []struct {
		args, want []string
	}{
		{[]string{"all"}, nil},
		{[]string{"nixl", "all"}, nil},
		{[]string{"plane", "nixl", "plane"}, []string{"plane", "nixl"}},
	} {
		if got := chosenSections(tc.args); !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.args, got, tc.want)
		}
	}
}

func TestBenchCommandLine(t *testing.T) {
	for _, tc := range []struct {
		flags benchFlags
		args  []string
		want  string
	}{
		{benchFlags{output: "markdown"}, []string{"all"}, "dynlab bench all"},
		{benchFlags{output: "json", quick: true, write: "docs/benchmarks.md"}, []string{"engine", "nixl"},
			"dynlab bench engine nixl --quick -o json --write docs/benchmarks.md"},
		{benchFlags{output: "markdown", model: "/m/it's a model"}, []string{"engine"}, `dynlab bench engine --model '/m/it'\''s a model'`},
		{benchFlags{output: "markdown", text: "a book", cpu: bench.CPUOptions{Models: []string{"m"}, Cases: []string{"a", "b"}, Threads: []int{1, 2}, Operators: true}},
			[]string{"cpu"}, "dynlab bench cpu --text 'a book' --models m --cases a,b --threads 1,2 --operators"},
	} {
		if got := tc.flags.command(tc.args); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// A benchmark's child does what it is told and ends with its standard input.
func TestBenchChild(t *testing.T) {
	t.Parallel()
	if code, stdout, stderr := execute(t, "bench", child, `{"spin":1}`); code != exitOK || stdout != "spinning\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := execute(t, "bench", child, `{}`); code != exitFailed || !strings.Contains(stderr, "nothing to do") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if args, err := ownChild("bench"); err != nil || len(args) != 3 || args[1] != "bench" || args[2] != child {
		t.Errorf("a child is started by %q, %v", args, err)
	}
}
