package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// Verb describes a command.
type Verb struct {
	Use      string // "drain <worker>..."
	Short    string // one sentence
	Long     string // more, for --help=all
	Examples []string
	Group    string
	Changes  bool // it changes the cluster
	// Late commands refuse changes themselves, since not all of their runs change something.
	Late     bool
	Local    bool // it changes files on this machine, and not the cluster
	Args     cobra.PositionalArgs
	Complete cobra.CompletionFunc
	See      []string // other commands
	// Options completes the options of one run, of which flags have set some.
	Options func(s *session.Session, args []string) Runner
}

// Groups of commands in the help.
const (
	GroupRun     = "run"
	GroupLook    = "look"
	GroupWorkers = "workers"
	GroupOther   = "other"
)

// Annotations of commands, for their help.
const (
	ImpactAnnotation  = "dynctl_impact"
	SeeAnnotation     = "dynctl_see"
	ExampleAnnotation = "dynctl_examples"
	TopicAnnotation   = "dynctl_topic" // of a text that belongs to no command
)

// What commands change, as annotations.
const (
	ImpactNone    = "read-only"
	ImpactCluster = "changing"
	ImpactLocal   = "local"
)

// Command makes a cobra command from a verb.
func (a *App) Command(v Verb) *cobra.Command {
	cmd := v.bare()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := a.Begin(cmd)
		if err != nil {
			return err
		}
		defer s.Close()
		if v.Changes && !v.Late && !dryRun(cmd) {
			if err := s.Writable(); err != nil {
				return err
			}
		}
		o := v.Options(s, args)
		if a.Do != nil {
			return a.Do(cmd.Context(), o)
		}
		return o.Run(cmd.Context())
	}
	return cmd
}

// bare is the command without what it does.
func (v Verb) bare() *cobra.Command {
	impact := ImpactNone
	switch {
	case v.Changes:
		impact = ImpactCluster
	case v.Local:
		impact = ImpactLocal
	}
	return &cobra.Command{
		Use: v.Use, Short: v.Short, Long: v.Long, GroupID: v.Group,
		Annotations: map[string]string{
			ImpactAnnotation: impact, SeeAnnotation: strings.Join(v.See, ", "), ExampleAnnotation: strings.Join(v.Examples, "\n"),
		},
		Args:              CheckArgs(v.Args),
		ValidArgsFunction: v.Complete,
	}
}

// dryRun reports whether a command only prints its plan.
func dryRun(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("dry-run")
	return err == nil && on
}

// Group makes a command that only has others below it, as dynctl get.
func Group(v Verb, below ...*cobra.Command) *cobra.Command {
	v.Args = cobra.ArbitraryArgs
	cmd := v.bare()
	cmd.RunE = HelpOrUnknown
	cmd.AddCommand(below...)
	return cmd
}

// HelpOrUnknown prints the help of a command that does nothing by itself. What stands behind
// it is no command.
func HelpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	u := &exit.UsageError{Text: fmt.Sprintf("unknown command %q", args[0])}
	for _, s := range Near(cmd, args[0]) {
		u.Tries = append(u.Tries, cmd.CommandPath()+" "+s)
	}
	return u
}

// Near returns the commands below cmd with names similar to name.
func Near(cmd *cobra.Command, name string) []string {
	cmd.SuggestionsMinimumDistance = min(max(len(name)/2, 1), 2) // edits; a short name is soon another
	return cmd.SuggestionsFor(name)
}

// UsageLine is the form of a command: dynctl drain <worker>... [flags].
func UsageLine(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	if _, form, ok := strings.Cut(cmd.Use, " "); ok {
		line += " " + form
	}
	if cmd.HasAvailableSubCommands() && cmd.Runnable() && !cmd.HasParent() {
		return line
	}
	return line + " [flags]"
}
