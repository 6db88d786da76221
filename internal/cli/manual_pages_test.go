package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/help"
	"github.com/dynctl/dynctl/internal/cli/manual"
	"github.com/dynctl/dynctl/internal/tui"
)

// manuals are pages about a command and all below it, itself first.
func manuals(root *cobra.Command, environ []string) []manual.Page {
	first := manualPage(root)
	for _, name := range []string{"environment", "exit-codes", "config", "formatting"} {
		title := strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "-", " ")
		first.Sections = append(first.Sections, manual.Section{Title: title, Text: help.Topic(name, environ)})
	}
	pages := []manual.Page{first}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if !documented(c) {
				continue
			}
			pages = append(pages, manualPage(c))
			walk(c)
		}
	}
	walk(root)
	return pages
}

// documented reports whether a command has a page: topics of the help are part of the
// first one, and the shells of completion are one command.
func documented(c *cobra.Command) bool {
	topic := c.Annotations[command.TopicAnnotation] != "" && c.Name() != "config"
	return !c.Hidden && !topic && c.Name() != "help" && c.Parent().Name() != "completion"
}

// manualPage returns the help of a command with all of its flags.
func manualPage(c *cobra.Command) manual.Page {
	p := manual.Page{Path: c.CommandPath(), Short: c.Short, Usage: command.UsageLine(c), Long: c.Long, Note: strings.TrimSuffix(help.ImpactText(c), ".")}
	if c.Name() == "completion" {
		p.Long = "Source the script, or put it where the shell looks for it. Names of workers, nodes, queues and\nrequests are completed from the running cluster."
	}
	if ex := c.Annotations[command.ExampleAnnotation]; ex != "" {
		p.Examples = strings.Split(ex, "\n")
	}
	if see := c.Annotations[command.SeeAnnotation]; see != "" {
		for s := range strings.SplitSeq(see, ", ") {
			p.See = append(p.See, seePath(c.Root(), s))
		}
	}
	groups := c.Groups()
	for _, sub := range c.Commands() {
		if !documented(sub) {
			continue
		}
		e := manual.Entry{Path: sub.CommandPath(), Short: sub.Short, Heading: "Commands"}
		for _, g := range groups {
			if g.ID == sub.GroupID {
				e.Heading = g.Title
			}
		}
		p.Commands = append(p.Commands, e)
	}
	p.Commands = inGroups(p.Commands, groups)
	own, global := help.FlagsOf(c)
	if !c.HasParent() {
		own = append(own, global...)
	}
	for _, title := range help.FlagGroups(own) {
		g := manual.Group{Title: title}
		for _, fl := range own {
			if help.GroupOf(fl) == title && !fl.Hidden {
				g.Flags = append(g.Flags, fl)
			}
		}
		p.Flags = append(p.Flags, g)
	}
	if c.HasParent() {
		p.See = append(p.See, c.Root().Name())
	}
	return p
}

// inGroups orders commands by their headings.
func inGroups(list []manual.Entry, groups []*cobra.Group) []manual.Entry {
	if len(groups) == 0 {
		return list
	}
	var out []manual.Entry
	for _, g := range groups {
		for _, e := range list {
			if e.Heading == g.Title {
				out = append(out, e)
			}
		}
	}
	return out
}

// seePath is the command of a reference like "dynctl top --view queue" or "dynctl help
// keys".
func seePath(root *cobra.Command, see string) string {
	words := strings.Fields(see)[1:]
	for i, w := range words {
		if strings.HasPrefix(w, "-") {
			words = words[:i]
			break
		}
	}
	c, _, err := root.Find(words)
	if err != nil || !c.HasParent() || !documented(c) {
		return root.Name()
	}
	return c.CommandPath()
}

// keysPage is the key map of the dashboard in Markdown.
func keysPage() string {
	var b strings.Builder
	b.WriteString("# Keys of dynctl top\n\nMade from the key map; `make docs` writes it anew.\n")
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	help.WriteKeys(&b, "\n## %s\n\n| Key | Does |\n|---|---|\n", func(k tui.KeyHelp) string {
		return fmt.Sprintf("| `%s` | %s |\n", cell(k.Keys), cell(k.Help))
	})
	return b.String()
}
