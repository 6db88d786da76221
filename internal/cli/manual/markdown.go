package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// flagWidth is the widest line of a list of flags.
const flagWidth = 110

// Markdown writes a reference: the pages one after the other, the first as the beginning
// of the document.
func Markdown(w io.Writer, title string, pages []Page) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nMade from the commands; `make docs` writes it anew.\n", title)
	known := map[string]bool{}
	for _, p := range pages {
		known[p.Path] = true
	}
	for _, p := range pages {
		page(&b, p, known, pages[0].Path)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// page writes one command; top is the path of the first page, whose heading is the title.
func page(b *strings.Builder, p Page, known map[string]bool, top string) {
	if p.Path != top {
		fmt.Fprintf(b, "\n## %s\n", p.Path)
	}
	fmt.Fprintf(b, "\n%s.\n", text(p.Short))
	if p.Note != "" {
		fmt.Fprintf(b, "*%s*\n", text(p.Note))
	}
	if p.Long != "" {
		fmt.Fprintf(b, "\n%s\n", text(strings.TrimSpace(p.Long)))
	}
	fence(b, p.Usage)
	heading := ""
	for i, c := range p.Commands {
		if c.Heading != heading || i == 0 {
			heading = c.Heading
			fmt.Fprintf(b, "\n%s\n\n", strings.TrimSpace(heading+":"))
		}
		fmt.Fprintf(b, "- %s: %s\n", link(c.Path, known), text(c.Short))
	}
	if len(p.Examples) > 0 {
		fence(b, strings.Join(p.Examples, "\n"))
	}
	for _, g := range p.Flags {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.SortFlags = false
		for _, f := range g.Flags {
			fs.AddFlag(f)
		}
		fence(b, g.Title+":\n"+fs.FlagUsagesWrapped(flagWidth))
	}
	for _, s := range p.Sections {
		fmt.Fprintf(b, "\n### %s\n", s.Title)
		fence(b, s.Text)
	}
	var links []string
	for _, s := range p.See {
		if s != top { // the document itself
			links = append(links, link(s, known))
		}
	}
	if len(links) > 0 {
		fmt.Fprintf(b, "\nSee also: %s\n", strings.Join(links, ", "))
	}
}

// link points to the heading of a command, if there is one.
func link(path string, known map[string]bool) string {
	if !known[path] {
		return "`" + path + "`"
	}
	return fmt.Sprintf("[%s](#%s)", path, strings.ReplaceAll(path, " ", "-"))
}

func fence(b *strings.Builder, body string) {
	fmt.Fprintf(b, "\n```\n%s\n```\n", strings.TrimRight(body, "\n"))
}

// text keeps words in angle brackets and stars from being taken for markup.
func text(s string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(s)
}
