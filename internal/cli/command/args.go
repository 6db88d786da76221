package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/exit"
)

// CheckArgs turns a complaint about arguments into a mistake in the command line. Without a
// check there may be none.
func CheckArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		check = NoArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &exit.UsageError{Text: err.Error()}
		}
		return nil
	}
}

// NoArgs refuses arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// One wants one name.
func One(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("name one %s", what)
		}
		return nil
	}
}

// AtMostOne wants one argument or none.
func AtMostOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("name one %s at most", what)
		}
		return nil
	}
}

// Names refuses an empty list, unless it is optional, and names that stand twice.
func Names(what string, optional bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 && !optional {
			return fmt.Errorf("name at least one %s", what)
		}
		seen := map[string]bool{}
		for _, a := range args {
			if seen[a] {
				return fmt.Errorf("%s is named twice", a)
			}
			seen[a] = true
		}
		return nil
	}
}
