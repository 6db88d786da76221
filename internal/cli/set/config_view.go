package set

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
)

// ConfigCommand is the noun "config": a topic of the help, and what is in force.
func ConfigCommand(a *command.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Show and change the configuration of dynctl; the file and its keys", GroupID: command.GroupOther,
		Annotations: map[string]string{command.TopicAnnotation: "config"},
		Args:        cobra.ArbitraryArgs,
		RunE:        command.HelpOrUnknown,
	}
	cmd.AddCommand(configViewCommand(a), configSetCommand(a))
	return cmd
}

// setting is one effective value, as -o json prints it.
type setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// ConfigViewOptions print the settings that are in force.
type ConfigViewOptions struct {
	Session *session.Session
	Origin  bool // say where each value came from
}

func configViewCommand(a *command.App) *cobra.Command {
	o := &ConfigViewOptions{}
	cmd := a.Command(command.Verb{
		Use: "view", Short: "Print every effective setting, and where it came from",
		Long: "Secrets are not shown. The origin is a flag, a variable, a line of a file, or the default.",
		Examples: []string{
			"dynctl config view",
			"dynctl config view --origin",
			"dynctl config view -o json",
		},
		See: []string{"dynctl config set", "dynctl help config", "dynctl help environment"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	cmd.Flags().BoolVar(&o.Origin, "origin", false, "say where each value came from")
	return cmd
}

// Run prints them.
func (o *ConfigViewOptions) Run(context.Context) error {
	s := o.Session
	titles := []string{"KEY", "VALUE"}
	if o.Origin {
		titles = append(titles, "ORIGIN")
	}
	t := output.NewTable(titles...)
	a := output.Answer{Table: func(bool) *output.Table { return t }}
	all := []setting{}
	for _, v := range s.Origins.All() {
		row := []string{v.Key, human.OrDash(v.Text())}
		if o.Origin {
			row = append(row, v.Origin.String())
		}
		t.Add(row...)
		all = append(all, setting{v.Key, v.Plain(), v.Origin.String()})
		a.Names = append(a.Names, v.Key)
	}
	a.Data = all
	if file := s.Origins.File(); file != "" && o.Origin {
		s.Out.Note("configuration file: %s", file)
	}
	return s.Out.Answer(a)
}
