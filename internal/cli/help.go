package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/config"
)

// Values of --help.
const (
	helpShort = "short"
	helpAll   = "all"
)

// helpFlag is --help with an optional value. To cobra it looks like a bool.
type helpFlag struct{ mode string }

func (h *helpFlag) Set(text string) error {
	switch text {
	case "true":
		text = helpShort
	case "false":
		text = ""
	}
	h.mode = text
	return nil
}

func (h *helpFlag) String() string {
	if h.mode == "" {
		return "false"
	}
	return "true"
}

func (h *helpFlag) Type() string { return "bool" }

// helpWidth is the widest line of a help text.
const helpWidth = 100

// helpCommand is "dynctl help [command or topic]".
func (f *factory) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command or topic]", Short: "Explain a command or a topic", GroupID: groupOther,
		Annotations: map[string]string{impactAnnotation: "read-only"},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var out []cobra.Completion
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && !c.Hidden {
					out = append(out, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || len(args) > 0 && target == cmd.Root() {
				u := &usageError{text: fmt.Sprintf("no command or topic %q", strings.Join(args, " "))}
				for _, s := range near(cmd.Root(), args[0]) {
					u.tries = append(u.tries, "dynctl help "+s)
				}
				return u
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// help prints the help of a command to standard output: it is an answer.
func (f *factory) help(cmd *cobra.Command, _ []string) {
	mode := helpShort
	if fl := cmd.Flags().Lookup("help"); fl != nil {
		if h, ok := fl.Value.(*helpFlag); ok && h.mode != "" {
			mode = h.mode
		}
	}
	var b strings.Builder
	switch {
	case cmd.Annotations[topicAnnotation] != "":
		b.WriteString(f.topic(cmd))
	case mode != helpShort && mode != helpAll:
		writeGroup(&b, cmd, mode)
	default:
		writeHelp(&b, cmd, mode == helpAll)
	}
	_, _ = f.env.Streams.Out.Write([]byte(b.String())) // the reader left
}

func writeHelp(b *strings.Builder, cmd *cobra.Command, all bool) {
	fmt.Fprintf(b, "%s.\n", strings.TrimSuffix(cmd.Short, "."))
	if all && cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(cmd.Long))
	}
	fmt.Fprintf(b, "\nUsage: %s\n", usageLine(cmd))
	for _, a := range cmd.Aliases {
		fmt.Fprintf(b, "Also:  %s %s\n", cmd.Parent().CommandPath(), a)
	}
	if ex := cmd.Annotations[exampleAnnotation]; ex != "" {
		fmt.Fprintf(b, "\n%s\n", indent(ex))
	}
	if cmd.HasAvailableSubCommands() {
		writeCommands(b, cmd)
	}
	flags, global := flagsOf(cmd)
	if all {
		flags = append(flags, global...)
	}
	for _, g := range flagGroups(flags) {
		if usage := flagUsages(flags, g, all); usage != "" {
			fmt.Fprintf(b, "\n%s:\n%s", g, usage)
		}
	}
	b.WriteString("\n")
	if text := impactText(cmd); text != "" {
		b.WriteString(text + "\n")
	}
	if !all {
		b.WriteString(globalHint(cmd))
	}
	if see := cmd.Annotations[seeAnnotation]; see != "" {
		fmt.Fprintf(b, "See also: %s\n", see)
	}
}

// impactText says what a command changes.
func impactText(cmd *cobra.Command) string {
	switch cmd.Annotations[impactAnnotation] {
	case "read-only":
		return "read-only: this command changes nothing."
	case "changing":
		return "changing: this command changes the cluster; --read-only refuses it."
	case "local":
		return "local: this command changes files on this machine, and not the cluster."
	}
	return ""
}

// globalHint says in one line what all commands have.
func globalHint(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "All commands have -c cluster, -o output, -q quiet, -v verbose: dynctl --help=all\n" +
			"Help topics: dynctl help {" + strings.Join(topicNames(), " | ") + "}\n"
	}
	return fmt.Sprintf("Also -c cluster, -o output, -q quiet, -v verbose: %s --help=all\n", cmd.CommandPath())
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// writeCommands lists the commands below cmd, by group.
func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	width := 0
	for _, c := range cmd.Commands() {
		width = max(width, len(c.Name()))
	}
	list := func(title, group string) {
		first := true
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() && c.Name() != "help" {
				continue
			}
			if first {
				fmt.Fprintf(b, "\n%s:\n", title)
				first = false
			}
			fmt.Fprintf(b, "  %s  %s\n", term.PadRight(c.Name(), width), c.Short)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	if len(cmd.Groups()) == 0 {
		list("Commands", "")
	}
}

// flagsOf returns the flags of a command in the order in which they were added: its
// own, and those that all commands have.
func flagsOf(cmd *cobra.Command) (own, global []*pflag.Flag) {
	mine := cmd.LocalNonPersistentFlags()
	mine.SortFlags = false
	mine.VisitAll(func(fl *pflag.Flag) { own = append(own, fl) })
	all := cmd.Root().PersistentFlags()
	all.SortFlags = false
	all.VisitAll(func(fl *pflag.Flag) {
		if mine.Lookup(fl.Name) == nil {
			global = append(global, fl)
		}
	})
	return own, global
}

// flagGroups returns the headings of a list of flags, in order.
func flagGroups(flags []*pflag.Flag) []string {
	var groups []string
	for _, fl := range flags {
		if g := groupOf(fl); !fl.Hidden && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

func groupOf(fl *pflag.Flag) string {
	if g := fl.Annotations[config.GroupAnnotation]; len(g) > 0 {
		return g[0]
	}
	return "Flags"
}

// flagUsages prints the flags of one group.
func flagUsages(flags []*pflag.Flag, group string, all bool) string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	for _, fl := range flags {
		if groupOf(fl) == group && !fl.Hidden && (all || len(fl.Annotations[rareAnnotation]) == 0) {
			fs.AddFlag(fl)
		}
	}
	return fs.FlagUsagesWrapped(helpWidth)
}

// writeGroup prints the flags of one group, found by the beginning of its heading.
func writeGroup(b *strings.Builder, cmd *cobra.Command, want string) {
	own, global := flagsOf(cmd)
	flags := append(own, global...)
	groups := flagGroups(flags)
	for _, g := range groups {
		if strings.HasPrefix(strings.ToLower(g), strings.ToLower(want)) {
			fmt.Fprintf(b, "%s:\n%s", g, flagUsages(flags, g, true))
			return
		}
	}
	fmt.Fprintf(b, "No group %q. Groups of %s:\n", want, cmd.CommandPath())
	for _, g := range groups {
		fmt.Fprintf(b, "  %s\n", g)
	}
}
