package help

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
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

// Width is the widest line of a help text.
const Width = 100

// helpCommand is "dynctl help [command or topic]".
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command or topic]", Short: "Explain a command or a topic", GroupID: command.GroupOther,
		Annotations: map[string]string{command.ImpactAnnotation: command.ImpactNone},
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
				u := &exit.UsageError{Text: fmt.Sprintf("no command or topic %q", strings.Join(args, " "))}
				for _, s := range command.Near(cmd.Root(), args[0]) {
					u.Tries = append(u.Tries, "dynctl help "+s)
				}
				return u
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// AddFlag adds --help, which takes a value or none.
func AddFlag(fs *pflag.FlagSet) {
	fs.VarPF(&helpFlag{}, "help", "h", "help for the command; --help=all for every flag, --help=<group> for one group").NoOptDefVal = helpShort
}

// Set has root and all commands below it print these texts.
func Set(root *cobra.Command, a *command.App) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = a.Env.Streams.Out.Write([]byte(helpText(cmd, a.Env.Environ))) // the reader left
	})
	root.SetHelpCommand(helpCommand())
}

// helpText is the help of a command, in the length that --help asks for.
func helpText(cmd *cobra.Command, environ []string) string {
	mode := helpShort
	if fl := cmd.Flags().Lookup("help"); fl != nil {
		if h, ok := fl.Value.(*helpFlag); ok && h.mode != "" {
			mode = h.mode
		}
	}
	var b strings.Builder
	switch {
	case cmd.Annotations[command.TopicAnnotation] != "":
		b.WriteString(Topic(cmd.Annotations[command.TopicAnnotation], environ))
	case mode != helpShort && mode != helpAll:
		writeGroup(&b, cmd, mode)
	default:
		writeHelp(&b, cmd, mode == helpAll)
	}
	return b.String()
}

func writeHelp(b *strings.Builder, cmd *cobra.Command, all bool) {
	fmt.Fprintf(b, "%s.\n", strings.TrimSuffix(cmd.Short, "."))
	if all && cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(cmd.Long))
	}
	fmt.Fprintf(b, "\nUsage: %s\n", command.UsageLine(cmd))
	for _, a := range cmd.Aliases {
		fmt.Fprintf(b, "Also:  %s %s\n", cmd.Parent().CommandPath(), a)
	}
	if ex := cmd.Annotations[command.ExampleAnnotation]; ex != "" {
		fmt.Fprintf(b, "\n%s\n", indent(ex))
	}
	if cmd.HasAvailableSubCommands() {
		writeCommands(b, cmd, all)
	}
	flags, global := FlagsOf(cmd)
	if all {
		flags = append(flags, global...)
	}
	for _, g := range FlagGroups(flags) {
		if usage := flagUsages(flags, g, all); usage != "" {
			fmt.Fprintf(b, "\n%s:\n%s", g, usage)
		}
	}
	b.WriteString("\n")
	if text := ImpactText(cmd); text != "" {
		b.WriteString(text + "\n")
	}
	if !all {
		b.WriteString(globalHint(cmd))
	}
	if see := cmd.Annotations[command.SeeAnnotation]; see != "" {
		fmt.Fprintf(b, "See also: %s\n", see)
	}
}

// ImpactText says what a command changes.
func ImpactText(cmd *cobra.Command) string {
	switch cmd.Annotations[command.ImpactAnnotation] {
	case command.ImpactNone:
		return "read-only: this command changes nothing."
	case command.ImpactCluster:
		return "changing: this command changes the cluster; --read-only refuses it."
	case command.ImpactLocal:
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

// writeCommands lists the commands below cmd, by group; the rare ones only if all are wanted.
func writeCommands(b *strings.Builder, cmd *cobra.Command, all bool) {
	width := 0
	for _, c := range cmd.Commands() {
		width = max(width, len(c.Name()))
	}
	list := func(title, group string) {
		first := true
		for _, c := range cmd.Commands() {
			if c.GroupID != group || !c.IsAvailableCommand() || !all && c.Annotations[command.RareAnnotation] != "" { // help itself explains its topics below
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

// FlagsOf returns the flags of a command in the order in which they were added: its
// own, and those that all commands have.
func FlagsOf(cmd *cobra.Command) (own, global []*pflag.Flag) {
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

// FlagGroups returns the headings of a list of flags, in order.
func FlagGroups(flags []*pflag.Flag) []string {
	var groups []string
	for _, fl := range flags {
		if g := GroupOf(fl); !fl.Hidden && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// GroupOf is the heading under which the help lists a flag.
func GroupOf(fl *pflag.Flag) string {
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
		if GroupOf(fl) == group && !fl.Hidden && (all || len(fl.Annotations[command.RareAnnotation]) == 0) {
			fs.AddFlag(fl)
		}
	}
	return fs.FlagUsagesWrapped(Width)
}

// writeGroup prints the flags of one group, found by the beginning of its heading.
func writeGroup(b *strings.Builder, cmd *cobra.Command, want string) {
	own, global := FlagsOf(cmd)
	flags := append(own, global...)
	groups := FlagGroups(flags)
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
