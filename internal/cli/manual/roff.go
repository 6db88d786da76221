package manual

import (
	"fmt"
	"io"
	"strings"
)

// Roff writes the page for section 1 of the manual.
func Roff(w io.Writer, p Page) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	head := func(title string) { line(".SH %s", strings.ToUpper(escape(title))) }
	program, _, _ := strings.Cut(p.Path, " ")
	line(`.TH "%s" "1" "" "%s" "%s manual"`, strings.ToUpper(escape(p.Name())), escape(program), escape(program))
	line(".nh") // no hyphens: names are copied from here
	head("Name")
	line(`%s \- %s`, escape(p.Name()), escape(p.Short))
	head("Synopsis")
	line(`\fB%s\fP`, escape(p.Usage))
	if p.Long != "" || p.Note != "" {
		head("Description")
		paragraphs(&b, p.Long, p.Note)
	}
	if len(p.Commands) > 0 {
		head("Commands")
		entries(&b, p.Commands)
	}
	for _, g := range p.Flags {
		head(g.Title)
		for _, f := range g.Flags {
			name, value, help := option(f)
			line(".TP")
			line(`\fB%s\fP%s`, escape(name), italic(value))
			line("%s", escape(help))
		}
	}
	if len(p.Examples) > 0 {
		head("Examples")
		verbatim(&b, strings.Join(p.Examples, "\n"))
	}
	for _, s := range p.Sections {
		head(s.Title)
		verbatim(&b, s.Text)
	}
	if len(p.See) > 0 {
		head("See also")
		var names []string
		for _, s := range p.See {
			names = append(names, fmt.Sprintf(`\fB%s\fP(1)`, escape(strings.ReplaceAll(s, " ", "-"))))
		}
		line("%s", strings.Join(names, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func italic(value string) string {
	if value == "" {
		return ""
	}
	return ` \fI` + escape(value) + `\fP`
}

func paragraphs(b *strings.Builder, texts ...string) {
	first := true
	for _, text := range texts {
		for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
			if p == "" {
				continue
			}
			if !first {
				b.WriteString(".PP\n")
			}
			first = false
			b.WriteString(escape(p) + "\n")
		}
	}
}

func entries(b *strings.Builder, list []Entry) {
	heading := ""
	for _, e := range list {
		if e.Heading != heading {
			heading = e.Heading
			fmt.Fprintf(b, ".SS %s\n", escape(heading))
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fP\n%s\n", escape(e.Path), escape(e.Short))
	}
}

// verbatim keeps lines as they are.
func verbatim(b *strings.Builder, text string) {
	fmt.Fprintf(b, ".nf\n%s\n.fi\n", escape(strings.TrimRight(text, "\n")))
}

// escape makes text mean itself: a backslash, a dash that is typed, and a line that begins
// like a request.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
