package cli

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// TestScripts runs testdata/script/*.txtar against Main in this process. Beside the
// usual commands there are:
//
//	dynctl ARGS...    runs a command line; TTY=1 makes all streams terminals, INPUT is
//	                  what is typed, PATH where dynamod may be
//	code N            the last one exited with N
//	lines FILE MIN MAX, columns FILE MAX    size of a text
//
// MODELS is a folder with a small model, tiny, the same as tiny.gguf, and seer, GGUF files of one
// that reads images.
func TestScripts(t *testing.T) {
	models := scriptModels(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("MODELS", models)
			env.Setenv("PATH", filepath.Join(env.WorkDir, "bin"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dynctl": scriptDynctl, "code": scriptCode, "lines": scriptLines, "columns": scriptColumns,
		},
	})
}

func scriptDynctl(ts *testscript.TestScript, neg bool, args []string) {
	tty := ts.Getenv("TTY") != ""
	env := session.Env{
		Streams: term.Streams{
			In: strings.NewReader(ts.Getenv("INPUT")), Out: ts.Stdout(), Err: ts.Stderr(), InTTY: tty, OutTTY: tty, ErrTTY: tty,
			Measure: func() (int, int) { return 100, 30 },
		},
		Dir:        ts.MkAbs("."),
		Executable: func() (string, error) { return ts.MkAbs("bin/dynctl"), nil },
	}
	for _, name := range []string{
		"HOME", "PATH", "NO_COLOR", "CI", "TERM", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "ETCD_ENDPOINTS", "ETCD_AUTH_PASSWORD", "ETCD_AUTH_USERNAME",
		"DYNCTL_CLUSTER", "DYNCTL_OUTPUT", "DYNCTL_READ_ONLY", "DYNCTL_CONFIG", "DYNCTL_STATE_DIR", "DYNCTL_COLORS", "DYNCTL_NAMESPACE",
	} {
		if v := ts.Getenv(name); v != "" {
			env.Environ = append(env.Environ, name+"="+v)
		}
	}
	code := Main(context.Background(), args, env)
	ts.Setenv("EXIT", strconv.Itoa(code))
	if neg == (code == 0) {
		ts.Fatalf("dynctl %s: exit code %d", strings.Join(args, " "), code)
	}
}

func scriptCode(ts *testscript.TestScript, _ bool, args []string) {
	if got := ts.Getenv("EXIT"); len(args) != 1 || got != args[0] {
		ts.Fatalf("exit code %s, want %v", got, args)
	}
}

func scriptLines(ts *testscript.TestScript, _ bool, args []string) {
	n := strings.Count(ts.ReadFile(args[0]), "\n")
	least, _ := strconv.Atoi(args[1])
	most, _ := strconv.Atoi(args[2])
	if n < least || n > most {
		ts.Fatalf("%d lines, want %d to %d", n, least, most)
	}
}

func scriptColumns(ts *testscript.TestScript, _ bool, args []string) {
	most, _ := strconv.Atoi(args[1])
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if w := term.Width(strings.TrimRight(line, "\n")); w > most {
			ts.Fatalf("%d columns: %q", w, line)
		}
	}
}

// scriptModels makes a small model as a folder and as a GGUF file, and one that reads images.
func scriptModels(t *testing.T) string {
	t.Helper()
	spec := modeltest.Spec{Family: "qwen3", Layers: 1, Hidden: 32, Heads: 2, KVHeads: 1, FFN: 64, Vocab: 300, Tied: true, ContextLen: 1024}
	dir := modeltest.Generate(t, spec)
	models := t.TempDir()
	if err := os.CopyFS(filepath.Join(models, "tiny"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(modeltest.GGUF(t, dir, gguf.Q8_0), filepath.Join(models, "tiny.gguf")); err != nil {
		t.Fatal(err)
	}
	seer := modeltest.VisionGGUF(t, modeltest.Sighted(t, "llava"), modeltest.MmprojForm{})
	if err := os.Rename(seer, filepath.Join(models, "seer")); err != nil {
		t.Fatal(err)
	}
	return models
}
