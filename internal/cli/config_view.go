package cli

import (
	"context"

	"github.com/spf13/cobra"
)

// configCommand is the noun "config": a topic of the help, and what is in force.
func (f *factory) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Show and change the configuration of dynctl; the file and its keys", GroupID: groupOther,
		Annotations: map[string]string{topicAnnotation: "config"},
		Args:        cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(f.configView(), f.configSet())
	return cmd
}

// setting is one effective value, as -o json prints it.
type setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

func (f *factory) configView() *cobra.Command {
	var origin bool
	cmd := f.command(verb{
		use: "view", short: "Print every effective setting, and where it came from",
		long: "Secrets are not shown. The origin is a flag, a variable, a line of a file, or the default.",
		examples: []string{
			"dynctl config view",
			"dynctl config view --origin",
			"dynctl config view -o json",
		},
		see: []string{"dynctl config set", "dynctl help config", "dynctl help environment"},
		run: func(_ context.Context, inv *invocation, _ []string) error {
			titles := []string{"KEY", "VALUE"}
			if origin {
				titles = append(titles, "ORIGIN")
			}
			t := newTable(titles...)
			a := answer{table: func(bool) *table { return t }}
			all := []setting{}
			for _, v := range inv.origins.All() {
				row := []string{v.Key, orDash(v.Text())}
				if origin {
					row = append(row, v.Origin.String())
				}
				t.add(row...)
				all = append(all, setting{v.Key, v.Plain(), v.Origin.String()})
				a.names = append(a.names, v.Key)
			}
			a.data = all
			if file := inv.origins.File(); file != "" && origin {
				inv.note("configuration file: %s", file)
			}
			return inv.answer(a)
		},
	})
	cmd.Flags().BoolVar(&origin, "origin", false, "say where each value came from")
	return cmd
}
