package dynamod

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/manual"
	"github.com/dynctl/dynctl/internal/config"
)

var update = flag.Bool("update", false, "write the manual pages")

// manuals are pages about dynamod and its commands. Only this test needs them: an agent
// carries no manual.
func manuals() []manual.Page {
	root := command(io.Discard, os.Stderr)
	pages := []manual.Page{page(root)}
	pages[0].Flags = settings(root)
	pages[0].Sections = []manual.Section{
		{Title: "Environment", Text: environment()},
		{Title: "Exit codes", Text: fmt.Sprintf("  %d  stopped as it was told to\n  %d  the node could not start, or broke\n  %d  wrong flags, arguments or configuration\n", exitOK, exitFailed, exitUsage)},
		{Title: "Signals", Text: "  SIGTERM, SIGINT  drain all workers, finish the requests of the frontend, and end;\n                   a second one ends at once\n"},
	}
	pages[0].See = []string{"dynctl", "dynctl up"}
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		pages[0].Commands = append(pages[0].Commands, manual.Entry{Path: c.CommandPath(), Short: c.Short})
		p := page(c)
		p.Flags = []manual.Group{{Title: "Flags", Flags: visible(c.Flags())}}
		p.See = []string{root.Name()}
		pages = append(pages, p)
	}
	return pages
}

func page(c *cobra.Command) manual.Page {
	p := manual.Page{Path: c.CommandPath(), Short: c.Short, Usage: c.UseLine(), Long: c.Long}
	for line := range strings.Lines(c.Example) {
		p.Examples = append(p.Examples, strings.TrimSpace(line))
	}
	return p
}

// settings are the flags in the sections of the table they come from, and the others.
func settings(c *cobra.Command) []manual.Group {
	c.InitDefaultVersionFlag()
	table := config.DynamodTable()
	of := map[string]bool{}
	var out []manual.Group
	for _, s := range table.Sections {
		g := manual.Group{Title: strings.TrimSuffix(s.Title, ".")}
		for _, k := range table.Keys {
			if k.Section() == s.Name && k.HasFlag() {
				g.Flags = append(g.Flags, c.Flags().Lookup(k.FlagName()))
				of[k.FlagName()] = true
			}
		}
		if len(g.Flags) > 0 {
			out = append(out, g)
		}
	}
	var rest []*pflag.Flag
	for _, f := range visible(c.Flags()) {
		if !of[f.Name] {
			rest = append(rest, f)
		}
	}
	return append([]manual.Group{{Title: "Flags", Flags: rest}}, out...)
}

func visible(fs *pflag.FlagSet) (out []*pflag.Flag) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			out = append(out, f)
		}
	})
	return out
}

// environment lists the variables that do not follow from a flag.
func environment() string {
	var b strings.Builder
	b.WriteString("Each setting has a variable, which its flag names. A flag wins over a variable,\nthat over the configuration file, and that over the default. Others that count:\n\n")
	table := config.DynamodTable()
	for _, k := range table.Keys {
		var names []string
		for _, a := range k.Aliases {
			names = append(names, a.Name)
		}
		if !k.HasFlag() {
			names = append([]string{table.Env(k)}, names...)
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "  %s\n      %s\n", strings.Join(names, ", "), k.Help)
		}
	}
	fmt.Fprintf(&b, "  %s\n      configuration file\n", table.ConfigEnv())
	return b.String()
}

// The pages in docs/man about dynamod are made from its commands and its table of
// settings; make docs writes them.
func TestManuals(t *testing.T) {
	t.Setenv("HOME", "/home/user")
	dir := filepath.Join("..", "..", "docs", "man")
	known := map[string]bool{}
	for _, p := range manuals() {
		var b bytes.Buffer
		if err := manual.Roff(&b, p); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, p.Name()+".1")
		known[path] = true
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%s is stale (%v); run make docs", path, err)
		}
	}
	old, err := filepath.Glob(filepath.Join(dir, "dynamod*.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if known[path] {
			continue
		}
		if !*update {
			t.Errorf("%s is about no command; run make docs", path)
		} else if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}
