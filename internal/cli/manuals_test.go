package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command has a page, and every reference leads to one.
func TestManualsAreWhole(t *testing.T) {
	if keysPage() == "" {
		t.Error("no keys")
	}
	f := newFactory(Env{})
	pages := f.manuals()
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
	walk(f.root())
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
