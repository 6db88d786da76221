package dynamod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/dynlib"
	"github.com/dynctl/dynctl/internal/version"
)

// versionCommand prints which dynamod this is, in the columns of "dynctl version".
func versionCommand(stdout io.Writer) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "print the version of dynamod",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version.Build()
			switch output {
			case "json":
				return json.NewEncoder(stdout).Encode(v)
			case "text":
			default:
				return usageError{fmt.Errorf("--output: %q is not text or json", output)}
			}
			w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintf(w, "VERSION\tREVISION\tGO\tPLATFORM\n%s\t%s\t%s\t%s\n", v.Version, cmp.Or(v.Revision, "-"), v.Go, v.Platform) // it is kept until Flush
			if !dynlib.Enabled {
				_, _ = fmt.Fprintln(w, noLibraries)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, or json with the time of the commit")
	return cmd
}

// addCompletion adds the command that prints completion scripts.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Use, c.Short = "completion <shell>", "print a completion script for a shell"
		c.Long = ""
		c.Example = "  source <(dynamod completion bash)\n  dynamod completion zsh > \"${fpath[1]}/_dynamod\"\n  dynamod completion fish > ~/.config/fish/completions/dynamod.fish"
		c.Args = noArgs
		c.RunE = func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("name a shell: bash, zsh, fish or powershell")}
		}
		for _, shell := range c.Commands() {
			shell.Args = noArgs
		}
	}
}
