package command_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
)

// What people type who know other tools, and what they mistype, leads to a command or flag.
func TestSuggestions(t *testing.T) {
	for _, tt := range []struct {
		args []string
		text string
		try  string
	}{
		{[]string{"list"}, `unknown command "list"`, "dynctl ps"},
		{[]string{"stop", "worker-1"}, `unknown command "stop"`, "dynctl drain"},
		{[]string{"apply", "-f", "x"}, `unknown command "apply"`, "dynctl up"},
		{[]string{"apply", "--flag"}, `unknown command "apply"`, "dynctl up"},
		{[]string{"ps", "--outpt", "json"}, "unknown flag: --outpt; did you mean --output?", ""},
		{[]string{"ps", "--hiden"}, "unknown flag: --hiden", ""},
		{[]string{"--zzz"}, "unknown flag: --zzz", ""},
		{[]string{"ps", "-x"}, "unknown shorthand flag: 'x' in -x", ""},
	} {
		root := &cobra.Command{Use: "dynctl", Args: cobra.ArbitraryArgs, RunE: command.HelpOrUnknown, SilenceErrors: true, SilenceUsage: true}
		root.SetFlagErrorFunc(command.FlagError)
		ps := &cobra.Command{Use: "ps", RunE: func(*cobra.Command, []string) error { return nil }}
		ps.Flags().String("output", "", "")
		ps.Flags().Bool("hidden", false, "")
		_ = ps.Flags().MarkHidden("hidden")
		root.AddCommand(ps, &cobra.Command{Use: "up", Run: ps.Run}, &cobra.Command{Use: "drain", RunE: ps.RunE})
		for _, c := range root.Commands() {
			c.RunE = ps.RunE
		}
		command.SuggestFor(root)
		root.SetArgs(tt.args)
		var u *exit.UsageError
		if err := root.Execute(); !errors.As(err, &u) || u.Text != tt.text || tt.try != "" && !slices.Contains(u.Tries, tt.try) {
			t.Errorf("%v: %v, tries %v", tt.args, err, u)
		}
	}
}
