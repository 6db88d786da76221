package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Page holds the contents of one command's manual page.
type Page struct {
	Path     string // dynctl drain
	Short    string // one sentence, without a full stop
	Usage    string // dynctl drain <worker>... [flags]
	Long     string // paragraphs, parted by empty lines
	Note     string // a sentence about what the command changes; may be empty
	Examples []string
	Commands []Entry // below this one
	Flags    []Group
	See      []string // paths of other commands
	Sections []Section
}

// Entry is a line of a list: a command and what it does.
type Entry struct{ Path, Short, Heading string }

// Group is flags under a heading.
type Group struct {
	Title string
	Flags []*pflag.Flag
}

// Section is more text, with its lines as they are.
type Section struct{ Title, Text string }

// Name is the name of the page: the path with dashes.
func (p Page) Name() string { return strings.ReplaceAll(p.Path, " ", "-") }

// option is a flag in words: how it is written, what it does and its default.
func option(f *pflag.Flag) (name, value, help string) {
	value, help = pflag.UnquoteUsage(f)
	name = "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
	default:
		if f.Value.Type() == "string" {
			help += fmt.Sprintf(" (default %q)", f.DefValue)
		} else {
			help += fmt.Sprintf(" (default %s)", f.DefValue)
		}
	}
	return name, value, help
}
