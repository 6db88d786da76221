package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/manual"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// writeManuals makes all generated documents, by path from the top of the repository.
func writeManuals(t *testing.T) map[string]string {
	t.Helper()
	pages := manuals(root(command.New(session.Env{})), []string{"HOME=~"})
	out := map[string]string{"docs/keys.md": keysPage()}
	var b bytes.Buffer
	if err := manual.Markdown(&b, "dynctl", pages); err != nil {
		t.Fatal(err)
	}
	out["docs/cli.md"] = b.String()
	for _, p := range pages {
		b.Reset()
		if err := manual.Roff(&b, p); err != nil {
			t.Fatal(err)
		}
		out["docs/man/"+p.Name()+".1"] = b.String()
	}
	return out
}

// The manuals in docs are made from the commands and the key map; make docs writes them.
func TestManuals(t *testing.T) {
	top := filepath.Join("..", "..")
	want := writeManuals(t)
	old, err := filepath.Glob(filepath.Join(top, "docs", "man", "dynctl*.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if _, ok := want["docs/man/"+filepath.Base(path)]; ok {
			continue
		}
		if !*clitest.Update {
			t.Errorf("%s is about no command; run make docs", path)
		} else if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	for name, text := range want {
		path := filepath.Join(top, filepath.FromSlash(name))
		if *clitest.Update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != text {
			t.Errorf("%s is stale (%v); run make docs", name, err)
		}
	}
}

// Every command has a page, and every reference leads to one.
func TestManualsAreWhole(t *testing.T) {
	root := root(command.New(session.Env{}))
	pages := manuals(root, nil)
	var paths []string
	for _, p := range pages {
		paths = append(paths, p.Path)
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.HasParent() && documented(c) && !slices.Contains(paths, c.CommandPath()) {
			t.Errorf("%s has no page", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, p := range pages {
		for _, s := range p.See {
			if !slices.Contains(paths, s) {
				t.Errorf("%s refers to %s, which has no page", p.Path, s)
			}
		}
		if p.Short == "" || strings.Contains(p.Usage, "  ") {
			t.Errorf("%s: %q, %q", p.Path, p.Short, p.Usage)
		}
	}
	if n := len(pages[0].Sections); n != 4 {
		t.Errorf("%d topics", n)
	}
}

// No help text names an empty default.
func TestDefaultsAreNotEmpty(t *testing.T) {
	for name, text := range writeManuals(t) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "(default )") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}
