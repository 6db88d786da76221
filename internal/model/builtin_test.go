package model

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/orphan"
)

// builtinEnv makes the test binary write the built-in model into the folder that
// it names, and exit.
const builtinEnv = "DYNCTL_TEST_BUILTIN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(builtinEnv); dir != "" {
		path, err := Builtin(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(path)
		os.Exit(0)
	}
	if dir := os.Getenv(quantizeEnv); dir != "" {
		os.Exit(quantizeForever(dir))
	}
	os.Exit(m.Run())
}

func TestBuiltin(t *testing.T) {
	state := t.TempDir()
	dir, err := Builtin(state)
	if err != nil {
		t.Fatal(err)
	}
	m := mustOpen(t, dir)
	c := m.Config()
	if c.MaxContext != 4096 || m.TokenLimit() != c.Vocab || len(m.EOS()) == 0 || len(m.Files()) != 4 || m.WeightType() != "bf16" {
		t.Errorf("config %+v, %d tokens, eos %v, %d files, weights %s", c, m.TokenLimit(), m.EOS(), len(m.Files()), m.WeightType())
	}
	if m.WeightBytes() > 12<<20 {
		t.Errorf("%d bytes of weights: every dynamod carries them", m.WeightBytes())
	}
	if other, err := Builtin(t.TempDir()); err != nil || filepath.Base(other) != filepath.Base(dir) {
		t.Errorf("folder %s here and %s there, %v", dir, other, err)
	}
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Builtin(state)
	if err != nil || again != dir {
		t.Fatalf("second call: %s, %v", again, err)
	}
	if later, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil || !os.SameFile(info, later) {
		t.Error("the second call wrote the files again")
	}
}

// Both built-in models lie side by side, and only one of them sees.
func TestBuiltinVision(t *testing.T) {
	state := t.TempDir()
	dir, err := BuiltinVision.Write(state)
	if err != nil || dir != BuiltinVision.Dir(state) {
		t.Fatalf("%s, %v", dir, err)
	}
	m := mustOpen(t, dir)
	v := m.Config().Vision
	if v == nil || v.Tokens() != 16 || m.TokenLimit() != m.Config().Vocab || len(m.EOS()) == 0 || m.WeightType() != "bf16" || len(m.Warnings()) > 0 {
		t.Errorf("vision %+v, %d tokens, eos %v, weights %s, warnings %q", v, m.TokenLimit(), m.EOS(), m.WeightType(), m.Warnings())
	}
	if m.WeightBytes() > 12<<20 {
		t.Errorf("%d bytes of weights: every dynamod carries them", m.WeightBytes())
	}
	text, err := Builtin(state)
	if err != nil || text != BuiltinText.Dir(state) || text == dir {
		t.Fatalf("%s, %v", text, err)
	}
	if mustOpen(t, text).Config().Vision != nil {
		t.Error("the built-in model of text sees")
	}
}

func TestBuiltinRepairs(t *testing.T) {
	state := t.TempDir()
	dir, err := Builtin(state)
	if err != nil {
		t.Fatal(err)
	}
	want := mustOpen(t, dir).Digest()
	for name, damage := range map[string]func() error{
		"cut":     func() error { return os.Truncate(filepath.Join(dir, "model.safetensors"), 10) },
		"missing": func() error { return os.Remove(filepath.Join(dir, "config.json")) },
		"empty":   func() error { return os.RemoveAll(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			if again, err := Builtin(state); err != nil || again != dir {
				t.Fatalf("%s, %v", again, err)
			}
			if got := mustOpen(t, dir).Digest(); got != want {
				t.Errorf("digest %s, want %s", got, want)
			}
		})
	}
	onlyBuiltin(t, state)
}

// onlyBuiltin fails when anything but the finished model is left in the folder.
func onlyBuiltin(t *testing.T, state string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(state, "models"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestBuiltinAtOnce starts several processes and goroutines together.
func TestBuiltinAtOnce(t *testing.T) {
	state := t.TempDir()
	var wait sync.WaitGroup
	var mu sync.Mutex
	dirs := make(map[string]bool)
	add := func(dir string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		dirs[dir] = true
	}
	for range 3 {
		wait.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), builtinEnv+"="+state)
			out, err := orphan.CombinedOutput(cmd)
			add(strings.TrimSpace(string(out)), err)
		})
		wait.Go(func() { add(Builtin(state)) })
	}
	wait.Wait()
	if len(dirs) != 1 {
		t.Errorf("folders %v, want one", dirs)
	}
	for dir := range dirs {
		mustOpen(t, dir)
	}
	onlyBuiltin(t, state)
}

func TestBuiltinLeftovers(t *testing.T) {
	state := t.TempDir()
	old, young := filepath.Join(state, "models", "builtin-x.tmp-1"), filepath.Join(state, "models", "builtin-x.tmp-2")
	for _, dir := range []string{old, young} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hours := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(old, hours, hours); err != nil {
		t.Fatal(err)
	}
	if _, err := Builtin(state); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Error("an old leftover is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("the folder of a process at work was removed")
	}
}

func TestBuiltinUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Builtin(file); err == nil || !strings.Contains(err.Error(), "write built-in model") {
		t.Errorf("err = %v, want an error", err)
	}
}
