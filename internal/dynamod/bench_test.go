package dynamod

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/bench"
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
	for _, want := range []string{"{all | engine | path | nixl | plane | disagg | cpu | accuracy}", "--text", "--models", "--formats", "--cases", "--threads", "--quick", "--write", "--model"} {
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
		{benchFlags{output: "markdown"}, []string{"all"}, "dynamod bench all"},
		{benchFlags{output: "json", quick: true, write: "docs/benchmarks.md"}, []string{"engine", "nixl"},
			"dynamod bench engine nixl --quick -o json --write docs/benchmarks.md"},
		{benchFlags{output: "markdown", model: "/m/it's a model"}, []string{"engine"}, `dynamod bench engine --model '/m/it'\''s a model'`},
		{benchFlags{output: "markdown", text: "a book", cpu: bench.CPUOptions{Models: []string{"m"}, Cases: []string{"a", "b"}, Threads: []int{1, 2}, Operators: true}},
			[]string{"cpu"}, "dynamod bench cpu --text 'a book' --models m --cases a,b --threads 1,2 --operators"},
	} {
		if got := tc.flags.command(tc.args); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

func TestReplaceFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docs", "report.md")
	for _, want := range []string{"first", "second"} {
		if err := replaceFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the report only", entries, err)
	}
	if err := replaceFile(filepath.Join(path, "below a file"), nil); err == nil {
		t.Error("wrote below a file")
	}
}

// A benchmark's child does what it is told and ends with its standard input.
func TestBenchChild(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "bench", benchChild, `{"spin":1}`)
	if code := p.wait(); code != exitOK || p.stdout.String() != "spinning\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, p.stdout.String(), p.stderr.String())
	}
	p = start(t, t.TempDir(), "bench", benchChild, `{}`)
	if code := p.wait(); code != exitFailed || !strings.Contains(p.stderr.String(), "nothing to do") {
		t.Errorf("exit code %d, stderr %q", code, p.stderr.String())
	}
	if args := ownChild(); len(args) != 3 || args[2] != benchChild {
		t.Errorf("a child is started by %q", args)
	}
}
